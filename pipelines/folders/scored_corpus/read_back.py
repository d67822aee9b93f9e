"""Reads a scored corpus back: the conversation and the text of each response, with its reward and scores.

Candidates that a policy generated are stored in a column. Responses of an input corpus aren't stored again: they are parsed
from the row's carried columns, with the row shape that the run used, when a candidate's content is asked for.
"""

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import pyarrow as pa

from actors.errors import Rejected, SourceError
from actors.records import Message, Reasoning, Role, ScoreRequest
from actors.text.reasoning import split_reasoning
from actors.text.tool_calls import write_turn
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import RECORD
from pipelines.data.formats import RowRequests, RowShape, parse, with_policy_system
from pipelines.folders.run_folder.columns import CANDIDATE, PROMPT_HASH, RESPONSE, REWARD, ROW, SCORES, SHAPE, Columns
from pipelines.folders.run_folder.json_lines import exact_number, has_json, is_exact
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.member_runs import MEMBERS, is_fake
from pipelines.folders.scored_corpus.candidates import Candidate, Content, LeftField, LeftOut
from pipelines.folders.scored_corpus.expressions import Condition, Evaluator

_MET = "met"
_NO_INPUTS: Mapping[str, Any] = {}

CandidateOrLeftOut = Candidate | LeftOut  # A response read back, or why it isn't a candidate


class ReadResponse(NamedTuple):
    """The turns before a response, and its text; None for what couldn't be read when it was scored, or wasn't written.

    The text holds its calls, too; `turn` has them beside it. `fields`, `left` and `tools` are as in `Content`.
    """

    context: tuple[Message, ...] | None
    text: str | None
    fields: Mapping[str, Any] = {}
    left: Mapping[str, LeftField] = {}
    turn: Message | None = None
    tools: tuple[str, ...] = ()


class _StoredResponse(NamedTuple):
    # A response as its part holds it.
    # `record` is the row's line of a JSON corpus, else None, and `inputs` the input's other columns that are read. `shape`
    # is the row's in a mixed corpus, and `drawn` what a policy wrote, else None.
    row: str
    name: str
    prompt_hash: str | None
    reward: float | None
    scores: Mapping[str, float | None]
    shape: str | None
    drawn: str | None
    record: bytes | None
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Reader:
    """Reads the rows of a scored corpus back. Small and picklable.

    `where` is the condition that a response must meet to be a candidate; it must have a reward, too. `system` is the
    policy's system prompt. `made_up`: the rewards are the fake engine's. `stripped`: answers were scored without their
    reasoning. `reserved` are names, in lower case, under which no own field of the input comes along with a response; None
    if none does at all. Own fields are those of the record of a JSON row, whatever their types, and with `by_column` those
    that have a column. With `to_parquet` they stay columns: those of a Parquet corpus may hold what JSON can't.
    """

    columns: Columns
    shape: RowShape
    system: str | None = None
    where: Condition | None = None
    made_up: bool = False
    stripped: bool = False
    reserved: frozenset[str] | None = None
    by_column: bool = False
    to_parquet: bool = False

    @classmethod
    def of(cls, manifest: Manifest, where: str | None = None) -> "Reader":
        """The reader for a scored folder. Raises `ExpressionError` if `where` can't be used."""
        members = manifest.identity.get(MEMBERS)
        identities = [member["identity"] for member in members.values()] if members else [manifest.identity]
        identity = identities[0]  # all members of an ensemble read the same rows in the same way (`check_same_files`)
        stripped = all(member.get("reasoning") == Reasoning.STRIP for member in identities)
        policy, shape = identity.get("policy") or {}, RowShape.read(identity, unanswered=manifest.columns.drawn)
        condition = Condition.check(where, manifest.columns.ours_first) if where is not None else None
        return cls(manifest.columns, shape, policy.get("system"), condition, is_fake(manifest), stripped)

    def carrying(self, names: Collection[str], *, by_column: bool = False, to_parquet: bool = False) -> "Reader":
        """The reader that carries the input's own fields, but those that have one of these names, whatever its case."""
        reserved = frozenset(name.casefold() for name in names)
        return replace(self, reserved=reserved, by_column=by_column, to_parquet=to_parquet)

    @functools.cached_property
    def carried(self) -> tuple[str, ...]:
        """The columns of own fields that come along, such as ids, answers and labels, and not the prompt and responses."""
        if self.reserved is None:
            return ()
        fields = [field for field in self.columns.carried if field.name not in {*self._not_own, *self._record}]
        kept = [field.name for field in fields if self.to_parquet or has_json(field.type)]
        return tuple(name for name in kept if name.casefold() not in self.reserved)

    @functools.cached_property
    def _not_own(self) -> frozenset[str]:
        return self.shape.fields

    @property
    def _record(self) -> tuple[str, ...]:
        return (RECORD,) if self.columns.is_json else ()

    @property
    def reads(self) -> list[str]:
        mixed, drawn = [SHAPE] if self.columns.mixed else [], [CANDIDATE] if self.columns.drawn else []
        ours = [self.columns.prefix + name for name in (*mixed, ROW, RESPONSE, PROMPT_HASH, REWARD, SCORES, *drawn)]
        inputs = (*self._record, *self._inputs)
        return list(dict.fromkeys([*inputs, *ours, *(self.where.columns if self.where else ())]))

    @property
    def _inputs(self) -> Sequence[str]:
        if not self.columns.is_json:
            return self.columns.carried.names
        return self.carried if self.by_column else ()

    def candidates(self, tables: Iterable[pa.Table]) -> Iterator[list[CandidateOrLeftOut]]:
        """For each row of the corpus its responses, in order. The responses of a row must be neighbours in the tables."""
        where = self.where
        evaluate = Evaluator({_MET: where.sql}, where.columns, where.flat) if where is not None else None
        # Across tables: of 4,096 rows each, they may cut a row's responses apart.
        stored = itertools.chain.from_iterable(self._evaluate(table, evaluate) for table in tables)
        row: _CorpusRow | None = None
        responses: list[CandidateOrLeftOut] = []
        for response, is_met in stored:
            if row is None or row.name != response.row:
                if row is not None:
                    yield responses
                row, responses = _CorpusRow(self, response), []
            if response.reward is None:
                responses.append(LeftOut.UNSCORED)
            else:
                responses.append(self._candidate(response, row) if is_met else LeftOut.UNMET)
        if row is not None:
            yield responses

    def responses(self, table: pa.Table) -> Iterator[ReadResponse]:
        """Each response of a table, in order, with or without a reward. Raises `SourceError` if a row has changed."""
        for _, row in itertools.groupby(self._read_table(table), key=lambda stored: stored.row):
            responses = list(row)
            # Without a prompt hash nothing of it was read when it was scored, and the row may be malformed.
            is_read = any(stored.prompt_hash is not None for stored in responses)
            values = self._values(responses[0], is_read=is_read)
            requests = self._requests(responses[0], values) if is_read else None
            fields, dropped = self._own_fields(responses[0], values)
            for stored in responses:
                yield self._read_response(stored, requests)._replace(fields=fields, left=dropped)

    def _read_table(self, table: pa.Table) -> Iterator[_StoredResponse]:
        prefix, nothing = self.columns.prefix, itertools.repeat(None)
        ours = [table.column(prefix + name).to_pylist() for name in (ROW, RESPONSE, PROMPT_HASH, REWARD, SCORES)]
        shapes = table.column(prefix + SHAPE).to_pylist() if self.columns.mixed else nothing
        drawn = table.column(prefix + CANDIDATE).to_pylist() if self.columns.drawn else nothing
        records = table.column(RECORD).to_pylist() if self.columns.is_json else nothing
        inputs = python_rows(table.select(self._inputs)) if self._inputs else itertools.repeat(_NO_INPUTS)
        return map(_StoredResponse, *ours, shapes, drawn, records, inputs)

    def _evaluate(self, table: pa.Table, evaluate: Evaluator | None) -> Iterator[tuple[_StoredResponse, bool]]:
        is_met = evaluate(table).column(_MET).to_pylist() if evaluate is not None else [True] * len(table)
        return zip(self._read_table(table), is_met, strict=True)

    def _read_response(self, stored: _StoredResponse, requests: RowRequests | None) -> ReadResponse:
        if requests is None or stored.prompt_hash is None:
            return ReadResponse(None, None)
        if self.columns.drawn:
            turn = None if stored.drawn is None else Message(Role.ASSISTANT, stored.drawn)
            return ReadResponse(self._prompt(stored, requests), stored.drawn, turn=turn)
        return _parsed_response(stored, requests)

    def _candidate(self, stored: _StoredResponse, row: "_CorpusRow") -> Candidate:
        assert stored.prompt_hash is not None  # it was read, and has a reward
        assert stored.reward is not None
        scores = cast("Mapping[str, float]", stored.scores)  # so it is, but for rows of which a score is null
        if None in scores.values():
            scores = {output: value for output, value in scores.items() if value is not None}
        read = _ContentReader(row, stored)
        return Candidate(stored.row, stored.name, stored.prompt_hash, stored.reward, scores, read)

    def _content(self, stored: _StoredResponse, values: Mapping[str, Any], requests: RowRequests) -> Content:
        read = self._read_response(stored, requests)
        context, turn = read.context, read.turn
        assert context is not None
        assert turn is not None  # both were judged
        answer = split_reasoning(read.text or "").answer if self.stripped else None
        fields, dropped = self._own_fields(stored, values)
        judged_before = () if self.columns.drawn else _judged_before(context, requests)
        return Content(context, turn.content, answer, fields, judged_before, dropped, turn.calls, read.tools)

    def _own_fields(self, stored: _StoredResponse, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, LeftField]]:
        if self.reserved is None:
            return {}, {}
        # A row without a field that others have a column for has null, so that rows have the same columns.
        fields: dict[str, Any] = dict.fromkeys(self.carried)
        dropped: dict[str, LeftField] = {}
        # By column, a value is as its column has it, which may be null for one that didn't fit; else as the record has it.
        for name, value in (stored.inputs if self.by_column else values).items():
            if name in self._not_own or (value is None and not self.columns.is_json):
                continue
            if name.casefold() in self.reserved:
                dropped[name] = LeftField.TAKEN
            elif self.to_parquet or (is_exact(name) and is_exact(value)):
                fields[name] = value
            else:
                dropped[name] = LeftField.NO_JSON
        return fields, dropped

    def _prompt(self, stored: _StoredResponse, requests: RowRequests) -> tuple[Message, ...]:
        # A row may hold several prompts (the turns of a conversation), so the prompt is found by its hash. The policy's
        # system prompt was part of it then, so it is added before hashing.
        for request in requests.requests:
            context = with_policy_system(request.context, self.system)
            if replace(request, context=context).prompt_hash == stored.prompt_hash:
                return context
        raise SourceError(
            f"the row {stored.row} has changed since its candidates were sampled (prompt_hash {stored.prompt_hash}), or "
            "another version of Assay read it; sample it again"
        )

    def _values(self, stored: _StoredResponse, *, is_read: bool) -> Mapping[str, Any]:
        """The fields of a row; none, if it couldn't be read when it was scored either. Raises `SourceError`."""
        if not self.columns.is_json:
            return stored.inputs
        try:
            return {} if stored.record is None else parse(stored.record, exact_number)
        except Rejected as error:
            if not is_read:
                return {}
            raise SourceError(f"a scored row's own record can't be read again: {error}") from error

    def _requests(self, stored: _StoredResponse, values: Mapping[str, Any]) -> RowRequests:
        # By the name that stands beside it: a shape that is added later must not change how older rows are read.
        shape = self.shape.of_row(stored.shape) if stored.shape is not None else self.shape
        return shape.requests(values)


class _CorpusRow:
    # A row of the corpus, which is parsed once for all of its responses; not at all if none of them is read.
    __slots__ = ("_read", "_stored", "name", "reader")

    def __init__(self, reader: Reader, stored: _StoredResponse) -> None:
        self.name = stored.row
        self.reader = reader
        self._stored = stored
        self._read: tuple[Mapping[str, Any], RowRequests] | None = None

    def read(self) -> tuple[Mapping[str, Any], RowRequests]:
        if self._read is None:
            values = self.reader._values(self._stored, is_read=True)
            self._read = values, self.reader._requests(self._stored, values)
        return self._read


class _ContentReader:
    # Reads the content of a response at the first call, and keeps it. Raises `SourceError`.
    # One small object for each response: with a bound method, a partial and a cache in the row, candidates took half as much
    # time again.
    __slots__ = ("_content", "_row", "_stored")

    def __init__(self, row: _CorpusRow, stored: _StoredResponse) -> None:
        self._row = row
        self._stored = stored
        self._content: Content | None = None

    def __call__(self) -> Content:
        if self._content is None:
            self._content = self._row.reader._content(self._stored, *self._row.read())
        return self._content


def _judged_before(context: tuple[Message, ...], requests: RowRequests) -> tuple[int, ...]:
    if len(requests.requests) == 1:  # all of the row's responses come after the whole context
        return ()
    places = (len(request.context) for request in requests.requests for _ in request.responses)
    return tuple(sorted({place for place in places if place < len(context)}))


def _parsed_response(stored: _StoredResponse, requests: RowRequests) -> ReadResponse:
    """What was scored. Raises `SourceError` if the row has no such response to the recorded prompt."""
    for request in requests.requests:
        for response in request.responses:
            if response.name == stored.name and _is_scored_request(request, stored.prompt_hash):
                turn = Message(Role.ASSISTANT, response.content, response.calls)
                return ReadResponse(request.context, write_turn(turn), turn=turn, tools=request.tools)
    raise SourceError(
        f"{stored.name} of the row {stored.row} has changed since it was scored (prompt_hash {stored.prompt_hash}), or "
        "another version of Assay read it; score it again"
    )


def _is_scored_request(request: ScoreRequest, prompt_hash: str | None) -> bool:
    # A model that takes no principles was asked without those of the row: then the hash is of the request without them.
    if request.prompt_hash == prompt_hash:
        return True
    return bool(request.principles) and replace(request, principles=()).prompt_hash == prompt_hash
