"""The columns of a scored corpus: those carried over from the input, and those that Assay adds."""

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from actors.records import JudgeAnswer, Score
from actors.scorers.policy import GeneratedCandidate
from pipelines.corpus.corpus_files import FileKind, InputFile, is_utf8
from pipelines.corpus.python_rows import python_rows
from pipelines.corpus.readers import RECORD, RESERVED
from pipelines.storage import open_read

T = TypeVar("T")

ROW, RESPONSE, PROMPT_HASH = "row", "response_name", "prompt_hash"
SHAPE = "shape"
"""The shape of the input row; only in runs over mixed corpora."""
REWARD, SCORES, STATUS, REASON = "reward", "scores", "status", "reason"
STEPS, PROMPT_TOKENS, TRUNCATED = "steps", "prompt_tokens", "truncated"
VOTES, COMPLETION_TOKENS, TRACE = "votes", "completion_tokens", "trace"
SUSPECT = "suspect"
REASONED = "reasoned"
"""Whether a response, or a turn before it, held reasoning; only in runs that strip or keep reasoning."""
FROM_STORE = "from_store"
"""Whether the score of a response was taken from a store, or is that of an equal request; only in runs with `--store`."""
TEXT = "response_text"
"""The text of a response as it was judged: without reasoning that was stripped; null where it couldn't be read."""
CANDIDATE, FINISH_REASON, CANDIDATE_TOKENS = "candidate", "finish_reason", "candidate_tokens"
PARENT, FEEDBACK = "parent", "feedback"


WITHIN_ROW = (
    "the rewards here are of a judge that compares the responses of a row with each other (win rates, Bradley-Terry, a "
    "knock-out, the better of two), so those of different rows can't be compared"
)


@dataclass(frozen=True)
class Columns:
    """The schema of a run's parts: the carried input columns, then ours under the prefix.

    `steps`: the model also gives a reward for each step of a response. `votes`: it is a judge that gives several judgements.
    `trace`: the judge's texts are kept. `drawn`: a policy generated the responses. `refined`: some responses are edits of
    others. `mixed`: each row has a shape of its own. `flags`: our boolean columns that only some corpora have. `reserved`:
    names kept free for a corpus to be made from this one; neither this corpus nor its input may have them.
    """

    carried: pa.Schema
    outputs: tuple[str, ...]
    prefix: str
    steps: bool = False
    flags: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    votes: bool = False
    trace: bool = False
    drawn: bool = False
    refined: bool = False
    mixed: bool = False
    text: bool = False
    """Whether parts hold the text of each response. They do unless a setting leaves it out."""
    within_row: bool = False
    """Whether rewards compare the responses of a row with each other: those of different rows aren't comparable."""

    @property
    def ours(self) -> pa.Schema:
        """Assay's columns. `row` and `response_name` identify a response; `prompt_hash` groups responses to a prompt."""
        return pa.schema([*self._of_row, *((self.prefix + column.name, column.type) for column in self._of_response)])

    @property
    def repeated(self) -> pa.Schema:
        """The columns whose value is that of the input row for each of its responses: the carried ones, and `shape`."""
        return pa.schema([*self.carried, *self._of_row])

    @property
    def _of_row(self) -> pa.Schema:
        return pa.schema([(self.prefix + SHAPE, pa.string())] if self.mixed else [])

    @property
    def _of_response(self) -> list["_Column"]:
        """Our columns that say something of a response, in their order."""
        scores = pa.struct([(name, pa.float64()) for name in self.outputs])
        text, number, numbers = pa.string(), pa.float64(), pa.list_(pa.float64())
        columns = [
            _Column(ROW, text, attrgetter("row")),
            _Column(RESPONSE, text, attrgetter("name")),
            _Column(PROMPT_HASH, text, attrgetter("prompt_hash")),
            _Column(TEXT, text, lambda response: response.text and _utf8(response.text), self.text),
            _Column(CANDIDATE, text, lambda response: response.drawn and _utf8(response.drawn.text), self.drawn),
            _Column(FINISH_REASON, text, lambda response: response.drawn and response.drawn.finish_reason, self.drawn),
            _Column(CANDIDATE_TOKENS, pa.int32(), lambda response: response.drawn and response.drawn.tokens, self.drawn),
            _Column(PARENT, text, lambda response: response.candidate and response.candidate.parent, self.refined),
            _Column(FEEDBACK, text, lambda response: response.candidate and response.candidate.feedback, self.refined),
            _Column(REWARD, number, attrgetter("score.reward")),
            _Column(SCORES, scores, lambda response: response.if_scored(dict(response.score.scores))),
            _Column(STEPS, numbers, lambda response: response.if_scored(response.score.steps), self.steps),
            _Column(STATUS, text, attrgetter("score.status.value")),
            _Column(REASON, text, lambda response: response.score.reason and response.score.reason.value),
            _Column(PROMPT_TOKENS, pa.int32(), attrgetter("score.prompt_tokens")),
            _Column(TRUNCATED, pa.bool_(), attrgetter("score.truncated")),
            _Column(VOTES, numbers, lambda response: response.if_scored(response.score.votes), self.votes),
            _Column(COMPLETION_TOKENS, pa.int32(), attrgetter("score.completion_tokens"), self.votes),
            _Column(TRACE, pa.list_(_TRACE_ENTRY), lambda response: [*map(_trace_entry, response.score.trace)], self.trace),
            *(_Column(name, pa.bool_(), attrgetter(f"score.{name}")) for name in self.flags),
        ]
        return [column for column in columns if column.is_present]

    @property
    def schema(self) -> pa.Schema:
        """All columns of a part."""
        return pa.schema([*self.carried, *self.ours])

    @property
    def ours_first(self) -> pa.Schema:
        """All columns that SQL can name. A carried column whose name differs from one of ours only in case is left out."""
        ours = {name.casefold() for name in self.ours.names}
        return pa.schema([*self.ours, *(field for field in self.carried if field.name.casefold() not in ours)])

    def collision(self, names: Iterable[str]) -> str | None:
        """The first of the input's names that equals one of ours, ignoring case as SQL does; None if there is none."""
        ours = (*self.ours.names, *(self.prefix + name for name in self.reserved))
        reserved_names = {name.lower() for name in ours} | ({RECORD} if self.is_json else set())
        return next((name for name in names if name.lower() in reserved_names), None)

    @functools.cached_property
    def is_json(self) -> bool:
        """Whether the input was JSON: rows are then carried as their raw records."""
        return RECORD in self.carried.names and pa.types.is_large_binary(self.carried.field(RECORD).type)

    def check(self, names: Iterable[str]) -> None:
        """Raise `SourceError` if a carried column, or another name of the input, equals one of ours."""
        carried = self.carried.names[1:] if self.is_json else self.carried.names
        name = self.collision([*carried, *names])
        if name == RECORD:
            raise SourceError(f"the input has a field {RECORD!r}, where Assay keeps the raw record; rename it there")
        if name is not None:
            raise SourceError(
                f"the input has a column {name!r}, which is one of the columns that Assay adds; "
                f"rename ours with --prefix, e.g. --prefix=judge_ for judge_{name.removeprefix(self.prefix)}"
            )

    def table(
        self,
        repeated: pa.Table,
        rows: Sequence[tuple[str, str, str | None, Score]],
        candidates: Sequence[GeneratedCandidate | None] = (),
        texts: Sequence[str | None] = (),
    ) -> pa.Table:
        """The table of a part. `rows` has (row, response name, prompt hash, score) for each response, as does `repeated`.

        `candidates` has what a policy generated, None where nothing was; it is read only if `self.drawn`. `texts` has the
        judged text of each response; it is read only if `self.text`.
        """
        nothing = [None] * len(rows)
        sources = zip(rows, candidates if self.drawn else nothing, texts if self.text else nothing, strict=True)
        responses = [_Response(*row, candidate, text) for row, candidate, text in sources]
        ours = [pa.array(list(map(column.value, responses)), column.type) for column in self._of_response]
        return pa.table([*repeated.columns, *ours], self.schema)


class _Response(NamedTuple):
    """What a part is to hold of a response."""

    row: str
    name: str
    prompt_hash: str | None
    score: Score
    candidate: GeneratedCandidate | None
    text: str | None

    @property
    def drawn(self) -> GeneratedCandidate | None:
        """The candidate; None if it was never generated."""
        return self.candidate if self.candidate is not None and self.candidate.finish_reason is not None else None

    def if_scored(self, value: T) -> T | None:
        """The value if there is a reward; else null."""
        return value if self.score.reward is not None else None


class _Column(NamedTuple):
    """A column of ours: its name without the prefix, its type, and its value for a response."""

    name: str
    type: pa.DataType
    value: Callable[[_Response], Any]
    is_present: bool = True


_TRACE_ENTRY = pa.struct(
    [
        ("shown", pa.list_(pa.string())),
        ("principle", pa.string()),
        ("text", pa.string()),
        ("finish_reason", pa.string()),
        ("vote", pa.float64()),
        ("reason", pa.string()),
    ]
)
"""One text of a judge: the responses in the order shown, the text, and the vote that was parsed from it."""


def _utf8(text: str) -> str:
    """The text with lone surrogates replaced, as a last token that ends inside a character has them: Arrow takes none."""
    return text.encode("utf-8", "replace").decode()


def _trace_entry(judge_answer: JudgeAnswer) -> dict[str, Any]:
    return {
        **asdict(judge_answer),
        "text": _utf8(judge_answer.text),
        "shown": list(judge_answer.shown),
        "reason": judge_answer.reason and judge_answer.reason.value,
    }


def carried_columns(
    files: Sequence[InputFile],
    sample: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, pa.Schema] = MappingProxyType({}),
    earlier: pa.Schema | None = None,
    read: Collection[str] = (),
) -> pa.Schema:
    """The carried columns: all columns of Parquet files, or the raw record and the scalar fields of JSON rows.

    `schemas` are the columns of Parquet files by path. Of the others the columns are in `earlier`, the carried columns of
    the earlier session that knew them; without it they are opened. `read` are columns that prompt and responses are read
    from, also when the parts are read back.
    Raises `SourceError` if the input mixes both, or if Parquet files have types for one of `read` that don't go together.
    """
    first_files = {file.kind is FileKind.PARQUET: file.path for file in reversed(files)}
    if len(first_files) > 1:
        raise SourceError(
            f"the input mixes Parquet with JSON files, such as {first_files[True]} and {first_files[False]}; leave out one "
            "kind, or score them into two folders"
        )
    if True in first_files:
        return _unified_schema(files, schemas, earlier, read)
    return pa.schema([(RECORD, pa.large_binary()), *_flat_scalars(sample)])


def _unified_schema(
    files: Sequence[InputFile], schemas: Mapping[str, pa.Schema], earlier: pa.Schema | None, read: Collection[str]
) -> pa.Schema:
    first_files: dict[str, dict[pa.DataType, str]] = {}  # of each column and type
    unified_ids: set[int] = set()  # of schemas that the caller holds, so that no other gets the same id
    for file in files:
        held_schema = schemas.get(file.path, earlier)
        if id(held_schema) in unified_ids:  # a million files share a few schemas
            continue
        for field in _parquet_columns(file, held_schema):
            first_files.setdefault(field.name, {}).setdefault(field.type, file.path)
        if held_schema is not None:
            unified_ids.add(id(held_schema))
    schema = pa.schema([(name, unified_type(list(paths))) for name, paths in first_files.items()])
    for name in filter(first_files.__contains__, read):
        paths = first_files[name]
        if not all(_holds(schema.field(name).type, kind) for kind in paths):
            held = " and ".join(f"{kind} in {path}" for kind, path in paths.items())
            raise SourceError(f"the column {name!r}, from which rows are read, is {held}; give it one type in all files")
    return schema


def unified_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The type of a column of several: theirs, or the next wider one; text where there is none."""
    for all_kinds, promote in ((kinds, "default"), ([_plain(kind) for kind in kinds], "permissive")):
        try:
            return pa.unify_schemas([pa.schema([("", kind)]) for kind in all_kinds], promote_options=promote).field(0).type
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
    return pa.string()


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without what is only another way of storing the same values."""
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _holds(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether all values of type `other` stay what they are in a column of type `kind`."""
    kind, other = _plain(kind), _plain(other)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        return all(_holds(kind.field(field.name).type, field.type) for field in other)
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return _holds(kind.value_type, other.value_type)
    same = kind == other or pa.types.is_null(other)
    return same or any(is_a(kind) and is_a(other) for is_a in (pa.types.is_integer, pa.types.is_floating))


def carried_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column as one of another type, to which it was unified: as text where that is it; what doesn't fit is null."""
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        values = [row[""] for row in python_rows(pa.table({"": column}), None)]
    if pa.types.is_string(kind):
        return pa.array([None if value is None else _text_of(value) for value in values], kind)
    return pa.array([value if _storable(value, kind) else None for value in values], kind)


def _text_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def types_text(schemas: Iterable[pa.Schema], carried: pa.Schema) -> str:
    """A sentence on the columns whose types differ by file so that one doesn't hold the values of all; empty if none do."""
    kinds_by_name: dict[str, dict[pa.DataType, None]] = {}
    for field in itertools.chain.from_iterable({id(schema): schema for schema in schemas}.values()):
        kinds_by_name.setdefault(field.name, {})[field.type] = None
    shown = [
        f"{name!a} ({', '.join(map(str, kinds))}: as {carried.field(name).type})"
        for name, kinds in kinds_by_name.items()
        if name in carried.names and not all(_holds(carried.field(name).type, kind) for kind in kinds)
    ]
    if not shown:
        return ""
    return f"Of several types in the files: {', '.join(shown)}. What doesn't fit, as an integer beyond 2**53, is null there"


def check_carried(carried: pa.Schema, files: Sequence[InputFile]) -> None:
    """Raise `SourceError` for a Parquet file with a column that doesn't fit the type of the carried column of its name.

    A column of nulls fits, a struct that lacks fields and a narrower number. A column that isn't carried isn't checked here.
    """
    for file in files:
        for field in _parquet_columns(file):
            if field.name in carried.names and not _takes(carried.field(field.name).type, field.type):
                raise SourceError(
                    f"{file.path} has the column {field.name!r} as {field.type}, and the run that it is appended to has it "
                    f"as {carried.field(field.name).type}; convert the file, or score it into a new folder"
                )


def _takes(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a column of type `kind` takes values of type `other` without another type."""
    return bool(_plain(unified_type([kind, other])) == _plain(kind)) and not (
        pa.types.is_string(kind) and not _holds(kind, other)
    )


def _parquet_columns(file: InputFile, schema: pa.Schema | None = None) -> pa.Schema:
    """The columns of a Parquet file, which is opened unless its schema is given. Raises `SourceError` for wrong names."""
    if schema is None:
        with open_read(file.path, file.size) as stream:
            schema = pq.read_schema(stream)
    schema = schema.remove_metadata()
    if repeated := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise SourceError(f"{file.path} has more than one column {repeated[0]!r}; rename all but one")
    if clashes := sorted(RESERVED.intersection(schema.names)):
        raise SourceError(
            f"{file.path} has a column {clashes[0]!r}, a name that Assay needs while it works; rename it there"
        )
    if RECORD not in schema.names:
        return schema
    # Only the raw record of JSON rows is a large binary of this name (`is_json`).
    index = schema.get_field_index(RECORD)
    field = schema.field(index)
    return schema.set(index, field.with_type(pa.binary())) if pa.types.is_large_binary(field.type) else schema


def left_in_record(sample: Sequence[Mapping[str, Any]], but: Collection[str]) -> str:
    """A sentence on the fields of JSON rows that have no column of their own, with the reasons; empty if there are none.

    `but` are fields that aren't looked at: they hold prompt and responses.
    """
    types = {name: kinds for name, kinds in _types_by_name(sample).items() if name not in but}
    nested = sorted(name for name, kinds in types.items() if kinds & {list, dict})
    mixed = sorted(name for name, kinds in types.items() if kinds and name not in nested and _arrow_type(kinds) is None)
    why = {"lists or mappings": nested, "values of several types": mixed}
    if not (shown := [f"{', '.join(map(ascii, names))} ({what})" for what, names in why.items() if names]):
        return ""
    return f"Without a column of their own, in the rows' records alone: {'; '.join(shown)}"


def _types_by_name(sample: Sequence[Mapping[str, Any]]) -> dict[str, set[type]]:
    types_by_name: dict[str, set[type]] = {}
    for row in sample:
        for name, value in row.items():
            types_by_name.setdefault(name, set()).update([type(value)] if value is not None else [])
    return types_by_name


def _flat_scalars(sample: Sequence[Mapping[str, Any]]) -> list[pa.Field]:
    typed = ((name, _arrow_type(types)) for name, types in _types_by_name(sample).items())
    excluded = {RECORD} | RESERVED
    return [pa.field(name, kind) for name, kind in typed if kind is not None and name not in excluded and is_utf8(name)]


def _arrow_type(types: set[type]) -> pa.DataType | None:
    """The column type for values of these types; None for nested, mixed or only null values, which stay in the record."""
    if types <= {int, float} and float in types:
        return pa.float64()
    return {bool: pa.bool_(), int: pa.int64(), str: pa.string()}.get(next(iter(types))) if len(types) == 1 else None


def scalar_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of a given type; a value that doesn't fit is null here, and only in the raw record."""
    # The type check alone passes integers beyond 64 bits and lone surrogates. They are rare, so each value is tried alone
    # only if the whole column fails.
    try:
        return pa.array([value if _fits(value, kind) else None for value in values], kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return pa.array([value if _fits(value, kind) and _storable(value, kind) else None for value in values], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    # `type(...)` and not `isinstance`: a bool is an int in Python, and must not become 1 in a column of numbers.
    if pa.types.is_floating(kind):
        return type(value) in (int, float)
    return type(value) is {pa.bool_(): bool, pa.int64(): int, pa.string(): str}[kind]


def _storable(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return False
    return True
