"""A scored corpus read back: the conversation and the text of each response beside what it came to.

What a policy wrote has a column of its own; what a corpus held is read off its row again, in the way in which it was scored.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import Rejected, SourceError
from pipelines.asking import with_system
from pipelines.candidates import Candidate
from pipelines.columns import CANDIDATE, PROMPT_HASH, RESPONSE, REWARD, ROW, SCORES, Columns
from pipelines.formats import OwnColumns, RowRequests, RowShape, parse
from pipelines.manifest import Manifest
from pipelines.members import MEMBERS
from pipelines.readers import RECORD


@dataclass(frozen=True)
class Reader:
    """How the rows of a scored corpus are read back. Small and picklable."""

    columns: Columns
    shape: RowShape
    system: str | None

    @classmethod
    def of(cls, manifest: Manifest) -> "Reader":
        """For a scored folder. Of an ensemble every member read the same rows."""
        members = manifest.identity.get(MEMBERS)
        identity = next(iter(members.values()))["identity"] if members else manifest.identity
        own, policy = identity["own_columns"], identity.get("policy") or {}
        principles, drawn = identity.get("principle_column"), manifest.columns.drawn
        shape = RowShape(identity["shape"], identity["turns"], own and OwnColumns(**own), principles, drawn)
        return cls(manifest.columns, shape, policy.get("system"))

    @property
    def reads(self) -> list[str]:
        """The columns of the parts that it needs."""
        own = (ROW, RESPONSE, PROMPT_HASH, REWARD, SCORES, *([CANDIDATE] if self.columns.drawn else []))
        carried = [RECORD] if self.columns.is_json else self.columns.carried.names
        return [*carried, *(self.columns.prefix + name for name in own)]

    def candidates(self, responses: Iterable[Mapping[str, Any]]) -> Iterator[list[Candidate | None]]:
        """Those of each row of the corpus, in order; None for one that has no reward. A row's must be neighbours."""
        for _, own in itertools.groupby(responses, key=lambda response: response[self.columns.prefix + ROW]):
            yield self._of_row(list(own))

    def _of_row(self, responses: Sequence[Mapping[str, Any]]) -> list[Candidate | None]:
        prefix = self.columns.prefix
        if all(response[prefix + REWARD] is None for response in responses):
            return [None] * len(responses)
        asked = self._asked(responses[0])
        return [
            self._candidate(response, asked) if response[prefix + REWARD] is not None else None for response in responses
        ]

    def _candidate(self, response: Mapping[str, Any], asked: RowRequests) -> Candidate:
        prefix = self.columns.prefix
        name = response[prefix + RESPONSE]
        if self.columns.drawn:
            (request,) = asked.requests
            context, text = with_system(request.context, self.system), response[prefix + CANDIDATE]
        else:
            found = ((one.context, own.content) for one in asked.requests for own in one.responses if own.name == name)
            context, text = next(found)
        scores = {output: value for output, value in response[prefix + SCORES].items() if value is not None}
        return Candidate(
            response[prefix + ROW], name, response[prefix + PROMPT_HASH], context, text, response[prefix + REWARD], scores
        )

    def _asked(self, response: Mapping[str, Any]) -> RowRequests:
        if self.columns.is_json:
            try:
                row: object = parse(response[RECORD])
            except Rejected as error:
                raise SourceError(f"a scored row's own record can't be read again: {error}") from error
        else:
            row = {name: response[name] for name in self.columns.carried.names}
        return self.shape.requests(row)
