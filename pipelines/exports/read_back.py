"""A scored corpus read back: the conversation and the text of each response beside what it came to.

What a policy wrote has a column of its own; what a corpus held is read off its row again, in the way in which it was scored.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from actors.errors import Rejected, SourceError
from actors.records import Message, Reasoning
from actors.text.reasoning import split_reasoning
from pipelines.corpus.readers import RECORD
from pipelines.formats import OwnColumns, RowRequests, RowShape, parse, with_policy_system
from pipelines.scored_corpus.candidates import Candidate, LeftOut
from pipelines.scored_corpus.columns import CANDIDATE, PROMPT_HASH, RESPONSE, REWARD, ROW, SCORES, Columns
from pipelines.scored_corpus.expressions import Condition, Evaluator
from pipelines.scored_corpus.manifest import Manifest
from pipelines.scored_corpus.member_runs import MEMBERS, is_fake

_MET = "met"

Found = Candidate | LeftOut


@dataclass(frozen=True)
class Reader:
    """How the rows of a scored corpus are read back. Small and picklable.

    `where` is what a response must meet to be a candidate, beside having a reward; `made_up` says that the rewards are the
    fake engine's, `stripped` that they are of the answers without their reasoning.
    """

    columns: Columns
    shape: RowShape
    system: str | None = None
    where: Condition | None = None
    made_up: bool = False
    stripped: bool = False

    @classmethod
    def of(cls, manifest: Manifest, where: str | None = None) -> "Reader":
        """For a scored folder. Of an ensemble every member read the same rows. Raises `ExpressionError`."""
        members = manifest.identity.get(MEMBERS)
        identities = [member["identity"] for member in members.values()] if members else [manifest.identity]
        identity = identities[0]
        stripped = all(member.get("reasoning") == Reasoning.STRIP for member in identities)
        own, policy = identity["own_columns"], identity.get("policy") or {}
        principles, drawn = identity.get("principle_column"), manifest.columns.drawn
        shape = RowShape(identity["shape"], identity["turns"], own and OwnColumns.read(own), principles, drawn)
        condition = Condition.check(where, manifest.columns.ours_first) if where is not None else None
        return cls(manifest.columns, shape, policy.get("system"), condition, is_fake(manifest), stripped)

    @property
    def reads(self) -> list[str]:
        """The columns of the parts that it needs."""
        own = (ROW, RESPONSE, PROMPT_HASH, REWARD, SCORES, *([CANDIDATE] if self.columns.drawn else []))
        carried = [RECORD] if self.columns.is_json else self.columns.carried.names
        needed = [*carried, *(self.columns.prefix + name for name in own), *(self.where.columns if self.where else ())]
        return list(dict.fromkeys(needed))

    def candidates(self, tables: Iterable[pa.Table]) -> Iterator[list[Found]]:
        """Those of each row of the corpus, in order, or why one is none. A row's responses must be neighbours."""
        where = self.where
        evaluate = Evaluator({_MET: where.text}, where.columns, where.flat) if where is not None else None
        responses = itertools.chain.from_iterable(_responses(table, evaluate) for table in tables)
        for _, own in itertools.groupby(responses, key=lambda one: one[0][self.columns.prefix + ROW]):
            yield self._of_row(list(own))

    def _of_row(self, responses: Sequence[tuple[dict[str, Any], bool]]) -> list[Found]:
        why = [
            LeftOut.UNSCORED if response[self.columns.prefix + REWARD] is None else None if met else LeftOut.UNMET
            for response, met in responses
        ]
        asked = self._asked(responses[0][0]) if None in why else None
        return [left or self._candidate(response, asked) for (response, _), left in zip(responses, why, strict=True)]

    def _candidate(self, response: Mapping[str, Any], asked: RowRequests | None) -> Candidate:
        assert asked is not None
        prefix = self.columns.prefix
        name = response[prefix + RESPONSE]
        if self.columns.drawn:
            context, text = self._prompt(response, asked), response[prefix + CANDIDATE]
        else:
            context, text = self._judged(response, asked)
        scores = {output: value for output, value in response[prefix + SCORES].items() if value is not None}
        row, prompt_hash, reward = (response[prefix + column] for column in (ROW, PROMPT_HASH, REWARD))
        answer = split_reasoning(text).answer if self.stripped else None
        return Candidate(row, name, prompt_hash, context, text, reward, scores, answer)

    def _prompt(self, response: Mapping[str, Any], asked: RowRequests) -> tuple[Message, ...]:
        """What a policy answered. Raises `SourceError` if the row is another prompt than the recorded one."""
        recorded = response[self.columns.prefix + PROMPT_HASH]
        for request in asked.requests:
            context = with_policy_system(request.context, self.system)
            if replace(request, context=context).prompt_hash == recorded:
                return context
        raise SourceError(
            f"the row {response[self.columns.prefix + ROW]} isn't the prompt any more that its candidates answer "
            f"(prompt_hash {recorded}): it was changed, or read by another version of Assay; sample it again"
        )

    def _judged(self, response: Mapping[str, Any], asked: RowRequests) -> tuple[tuple[Message, ...], str]:
        """What was scored. Raises `SourceError` if the row has no response of this name to the recorded prompt."""
        row, name, recorded = (response[self.columns.prefix + column] for column in (ROW, RESPONSE, PROMPT_HASH))
        for request in asked.requests:
            for judged in request.responses:
                if (judged.name, request.prompt_hash) == (name, recorded):
                    return request.context, judged.content
        raise SourceError(
            f"{name} of the row {row} isn't what was scored any more (prompt_hash {recorded}): the row was changed, or read "
            "by another version of Assay; score it again"
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


def _responses(table: pa.Table, evaluate: Evaluator | None) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each response, and whether it meets the condition."""
    met = evaluate(table).column(_MET).to_pylist() if evaluate is not None else [True] * len(table)
    return zip(table.to_pylist(), met, strict=True)
