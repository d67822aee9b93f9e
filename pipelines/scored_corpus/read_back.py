"""Reads a scored corpus back: the conversation and the text of each response, with its reward and scores.

Candidates that a policy generated are stored in a column. Responses of an input corpus aren't stored again: they are parsed
from the row's carried columns, with the row shape that the run used, when a candidate's content is asked for.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from actors.errors import Rejected, SourceError
from actors.records import Message, Reasoning
from actors.text.reasoning import split_reasoning
from pipelines.corpus.readers import RECORD
from pipelines.formats import OwnColumns, RowRequests, RowShape, parse, with_policy_system
from pipelines.run_folder.columns import CANDIDATE, PROMPT_HASH, RESPONSE, REWARD, ROW, SCORES, SHAPE, Columns
from pipelines.run_folder.json_lines import has_json
from pipelines.run_folder.manifest import Manifest
from pipelines.run_folder.member_runs import MEMBERS, is_fake
from pipelines.scored_corpus.candidates import Candidate, Content, LeftOut
from pipelines.scored_corpus.expressions import Condition, Evaluator

_MET = "met"

CandidateOrLeftOut = Candidate | LeftOut
"""A response read back, or why it isn't a candidate."""


class ReadResponse(NamedTuple):
    """The turns before a response, and its text; None for what couldn't be read when it was scored, or wasn't written."""

    context: tuple[Message, ...] | None
    text: str | None


@dataclass(frozen=True)
class Reader:
    """Reads the rows of a scored corpus back. Small and picklable.

    `where` is the condition that a response must meet to be a candidate; it must have a reward, too. `system` is the
    policy's system prompt. `made_up`: the rewards are the fake engine's. `stripped`: answers were scored without their
    reasoning. `carried` are the input's own fields that come along with a response.
    """

    columns: Columns
    shape: RowShape
    system: str | None = None
    where: Condition | None = None
    made_up: bool = False
    stripped: bool = False
    carried: tuple[str, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest, where: str | None = None) -> "Reader":
        """The reader for a scored folder. Raises `ExpressionError` if `where` can't be used."""
        members = manifest.identity.get(MEMBERS)
        identities = [member["identity"] for member in members.values()] if members else [manifest.identity]
        identity = identities[0]  # all members of an ensemble read the same rows in the same way (`check_same_files`)
        stripped = all(member.get("reasoning") == Reasoning.STRIP for member in identities)
        text, policy = identity["own_columns"], identity.get("policy") or {}
        own_columns = text and OwnColumns.read(text)
        principles, generated = identity.get("principle_column"), manifest.columns.drawn
        shape = RowShape(identity["shape"], identity["turns"], own_columns, principles, generated)
        condition = Condition.check(where, manifest.columns.ours_first) if where is not None else None
        return cls(manifest.columns, shape, policy.get("system"), condition, is_fake(manifest), stripped)

    @property
    def own_fields(self) -> list[pa.Field]:
        """The input's flat fields that hold neither prompt nor response, such as ids, answers and labels.

        Nested fields, and those that JSON has no values for, aren't among them.
        """
        fields = (field for field in self.columns.carried if field.name not in (*self.shape.fields, *self._record))
        return [field for field in fields if not pa.types.is_nested(field.type) and has_json(field.type)]

    def carrying(self, names: Collection[str]) -> "Reader":
        """The reader that carries the input's own fields, but those that have one of these names, whatever its case."""
        folded = {name.casefold() for name in names}
        return replace(self, carried=tuple(field.name for field in self.own_fields if field.name.casefold() not in folded))

    @property
    def left_fields(self) -> list[str]:
        """The own fields that aren't carried, if any are to be: those whose names were taken."""
        return [field.name for field in self.own_fields if field.name not in self.carried]

    @property
    def _record(self) -> tuple[str, ...]:
        return (RECORD,) if self.columns.is_json else ()

    @property
    def reads(self) -> list[str]:
        """The columns to read from the parts."""
        mixed, drawn = [SHAPE] if self.columns.mixed else [], [CANDIDATE] if self.columns.drawn else []
        names = (*mixed, ROW, RESPONSE, PROMPT_HASH, REWARD, SCORES, *drawn)
        carried = [*self._record, *self.carried] if self.columns.is_json else self.columns.carried.names
        needed = [*carried, *(self.columns.prefix + name for name in names), *(self.where.columns if self.where else ())]
        return list(dict.fromkeys(needed))

    def candidates(self, tables: Iterable[pa.Table]) -> Iterator[list[CandidateOrLeftOut]]:
        """For each row of the corpus its responses, in order. The responses of a row must be neighbours in the tables."""
        where = self.where
        evaluate = Evaluator({_MET: where.text}, where.columns, where.flat) if where is not None else None
        responses = itertools.chain.from_iterable(_responses(table, evaluate) for table in tables)
        for _, row in itertools.groupby(responses, key=lambda pair: pair[0][self.columns.prefix + ROW]):
            yield self._read_row(list(row))

    def responses(self, table: pa.Table) -> Iterator[ReadResponse]:
        """Each response of a table, in order, with or without a reward. Raises `SourceError` as `candidates` does."""
        prefix = self.columns.prefix
        for _, row in itertools.groupby(table.select(self.reads).to_pylist(), key=lambda response: response[prefix + ROW]):
            responses = list(row)
            # Without a prompt hash nothing of it was read when it was scored, and the row may be malformed.
            is_read = [response[prefix + PROMPT_HASH] is not None for response in responses]
            requests = self._parse_row(responses[0]) if any(is_read) else None
            for response in responses:
                yield self._read_response(response, requests)

    def _read_response(self, response: Mapping[str, Any], requests: RowRequests | None) -> ReadResponse:
        prefix = self.columns.prefix
        if requests is None or response[prefix + PROMPT_HASH] is None:
            return ReadResponse(None, None)
        if self.columns.drawn:
            return ReadResponse(self._prompt(response, requests), response[prefix + CANDIDATE])
        return self._parsed_response(response, requests)

    def _read_row(self, responses: Sequence[tuple[dict[str, Any], bool]]) -> list[CandidateOrLeftOut]:
        reasons = [
            LeftOut.UNSCORED if response[self.columns.prefix + REWARD] is None else None if is_met else LeftOut.UNMET
            for response, is_met in responses
        ]
        row = _CorpusRow(self, responses[0][0])
        return [reason or self._candidate(response, row) for (response, _), reason in zip(responses, reasons, strict=True)]

    def _candidate(self, response: Mapping[str, Any], row: "_CorpusRow") -> Candidate:
        prefix = self.columns.prefix
        scores = {output: value for output, value in response[prefix + SCORES].items() if value is not None}
        name, prompt_hash, reward = (response[prefix + column] for column in (RESPONSE, PROMPT_HASH, REWARD))
        return Candidate(response[prefix + ROW], name, prompt_hash, reward, scores, _ContentReader(self, response, row))

    def _content(self, response: Mapping[str, Any], requests: RowRequests) -> Content:
        context, text = self._read_response(response, requests)
        assert context is not None
        assert text is not None  # both were judged
        answer = split_reasoning(text).answer if self.stripped else None
        fields = {field: response[field] for field in self.carried}
        return Content(context, text, answer, fields, () if self.columns.drawn else _judged_before(context, requests))

    def _prompt(self, response: Mapping[str, Any], requests: RowRequests) -> tuple[Message, ...]:
        """The prompt that a policy answered. Raises `SourceError` if the row is another prompt than the recorded one."""
        recorded = response[self.columns.prefix + PROMPT_HASH]
        # A row may hold several prompts (the turns of a conversation), so the prompt is found by its hash. The policy's
        # system prompt was part of it then, so it is added before hashing.
        for request in requests.requests:
            context = with_policy_system(request.context, self.system)
            if replace(request, context=context).prompt_hash == recorded:
                return context
        raise SourceError(
            f"the row {response[self.columns.prefix + ROW]} has changed since its candidates were sampled "
            f"(prompt_hash {recorded}), or another version of Assay read it; sample it again"
        )

    def _parsed_response(self, response: Mapping[str, Any], requests: RowRequests) -> ReadResponse:
        """What was scored. Raises `SourceError` if the row has no such response to the recorded prompt."""
        row, name, recorded = (response[self.columns.prefix + column] for column in (ROW, RESPONSE, PROMPT_HASH))
        for request in requests.requests:
            for parsed in request.responses:
                if parsed.name == name and request.prompt_hash == recorded:
                    return ReadResponse(request.context, parsed.content)
        raise SourceError(
            f"{name} of the row {row} has changed since it was scored (prompt_hash {recorded}), or another version of "
            "Assay read it; score it again"
        )

    def _parse_row(self, response: Mapping[str, Any]) -> RowRequests:
        if self.columns.is_json:
            try:
                row: object = parse(response[RECORD])
            except Rejected as error:
                raise SourceError(f"a scored row's own record can't be read again: {error}") from error
        else:
            row = {name: response[name] for name in self.columns.carried.names}
        # By the name that stands beside it: a shape that is added later must not change how older rows are read.
        shape = self.shape.of_row(response[self.columns.prefix + SHAPE]) if self.columns.mixed else self.shape
        return shape.requests(row)


class _CorpusRow:
    """A row of the corpus, which is parsed once for all of its responses; not at all if none of them is read."""

    def __init__(self, reader: Reader, response: Mapping[str, Any]) -> None:
        self._reader = reader
        self._response = response

    @cached_property
    def requests(self) -> RowRequests:
        """The requests of the row. Raises `SourceError`."""
        return self._reader._parse_row(self._response)


class _ContentReader:
    """Reads the content of a candidate at the first call, and keeps it."""

    __slots__ = ("_content", "_reader", "_response", "_row")

    def __init__(self, reader: Reader, response: Mapping[str, Any], row: _CorpusRow) -> None:
        self._reader = reader
        self._response = response
        self._row = row
        self._content: Content | None = None

    def __call__(self) -> Content:
        if self._content is None:
            self._content = self._reader._content(self._response, self._row.requests)
        return self._content


def _judged_before(context: tuple[Message, ...], requests: RowRequests) -> tuple[int, ...]:
    """The places in a context of turns that are responses of the same row."""
    places = (len(request.context) for request in requests.requests for _ in request.responses)
    return tuple(sorted({place for place in places if place < len(context)}))


def _responses(table: pa.Table, evaluate: Evaluator | None) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each response as a dict, and whether it meets the condition (True without one)."""
    is_met = evaluate(table).column(_MET).to_pylist() if evaluate is not None else [True] * len(table)
    return zip(table.to_pylist(), is_met, strict=True)
