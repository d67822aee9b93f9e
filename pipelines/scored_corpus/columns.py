"""The columns of a scored corpus: what is carried over from the input, and what Assay adds."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from actors.records import JudgeAnswer, Score
from actors.scorers.policy import Drawn
from pipelines.corpus.corpus_files import FileKind, InputFile
from pipelines.corpus.readers import RECORD, RESERVED
from pipelines.storage import open_read

ROW, RESPONSE, PROMPT_HASH = "row", "response_name", "prompt_hash"
REWARD, SCORES, STATUS, REASON = "reward", "scores", "status", "reason"
STEPS, PROMPT_TOKENS, TRUNCATED = "steps", "prompt_tokens", "truncated"
VOTES, COMPLETION_TOKENS, TRACE = "votes", "completion_tokens", "trace"
SUSPECT = "suspect"
REASONED = "reasoned"
"""Whether there was reasoning in a response, or in turns before it; only of a run that strips or keeps it."""
CANDIDATE, FINISH_REASON, CANDIDATE_TOKENS = "candidate", "finish_reason", "candidate_tokens"
PARENT, FEEDBACK = "parent", "feedback"


WITHIN_ROW = (
    "the rewards here are of a judge that compares the responses of a row with each other (win rates, Bradley-Terry, a "
    "knock-out, the better of two), so those of different rows can't be compared"
)


@dataclass(frozen=True)
class Columns:
    """The schema of a run's parts: the carried input columns, then ours under the prefix.

    `steps` says whether the model gives a reward for each step of a response, too; `votes`, whether it is a judge that gives
    judgements; `trace`, whether what it wrote is kept; `drawn`, whether a policy wrote the responses, and `refined`, whether
    some of them were made of others. `flags` are columns of ours that only some corpora have, true, false or null, and
    `reserved` names that are kept free for a corpus that is going to be made of this one: no column here, and none that the
    input may have.
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
    within_row: bool = False
    """Whether a reward says how a response stands beside the others of its row, so rewards of two rows can't be compared."""

    @property
    def ours(self) -> pa.Schema:
        """Assay's columns. `row` and `response_name` identify a response; `prompt_hash` groups responses to a prompt."""
        fields = [
            (ROW, pa.string()),
            (RESPONSE, pa.string()),
            (PROMPT_HASH, pa.string()),
            *(_DRAWN if self.drawn else []),
            *(_LINEAGE if self.refined else []),
            (REWARD, pa.float64()),
            (SCORES, pa.struct([(name, pa.float64()) for name in self.outputs])),
            *([(STEPS, pa.list_(pa.float64()))] if self.steps else []),
            (STATUS, pa.string()),
            (REASON, pa.string()),
            (PROMPT_TOKENS, pa.int32()),
            (TRUNCATED, pa.bool_()),
            *([(VOTES, pa.list_(pa.float64())), (COMPLETION_TOKENS, pa.int32())] if self.votes else []),
            *([(TRACE, pa.list_(_SAID))] if self.trace else []),
            *((name, pa.bool_()) for name in self.flags),
        ]
        return pa.schema([(self.prefix + name, kind) for name, kind in fields])

    @property
    def schema(self) -> pa.Schema:
        """All columns of a part."""
        return pa.schema([*self.carried, *self.ours])

    @property
    def ours_first(self) -> pa.Schema:
        """All columns that SQL knows: of two names that differ in case alone, ours, if it is one of them."""
        ours = {name.casefold() for name in self.ours.names}
        return pa.schema([*self.ours, *(field for field in self.carried if field.name.casefold() not in ours)])

    def collision(self, names: Iterable[str]) -> str | None:
        """The first of the input's names that is one of ours, if any; SQL doesn't tell `Reward` from `reward`."""
        ours = (*self.ours.names, *(self.prefix + name for name in self.reserved))
        taken = {name.lower() for name in ours} | ({RECORD} if self.is_json else set())
        return next((name for name in names if name.lower() in taken), None)

    @property
    def is_json(self) -> bool:
        """Whether rows are carried as their raw record."""
        return RECORD in self.carried.names and pa.types.is_large_binary(self.carried.field(RECORD).type)

    def check(self, names: Iterable[str]) -> None:
        """Raise `SourceError` if a carried column, or a name of the input, is one of ours."""
        own = self.carried.names[1:] if self.is_json else self.carried.names
        name = self.collision([*own, *names])
        if name == RECORD:
            raise SourceError(f"the input has a field {RECORD!r}, where Assay keeps the raw record; rename it there")
        if name is not None:
            raise SourceError(
                f"the input has a column {name!r}, which is one of the columns that Assay adds; "
                f"rename ours with --prefix, e.g. --prefix judge_ for judge_{name.removeprefix(self.prefix)}"
            )

    def table(
        self,
        carried: pa.Table,
        rows: Sequence[tuple[str, str, str | None, Score]],
        drawn: Sequence[Drawn | None] = (),
    ) -> pa.Table:
        """A part: one row per response, given as (row, response name, prompt hash, score), and `drawn` as what."""
        scores = [score for *_, score in rows]
        values: list[Sequence[Any]] = [
            [row for row, *_ in rows],
            [name for _, name, *_ in rows],
            [prompt_hash for *_, prompt_hash, _ in rows],
            *(_texts(drawn) if self.drawn else []),
            *([[one and one.parent for one in drawn], [one and one.feedback for one in drawn]] if self.refined else []),
            [score.reward for score in scores],
            [dict(score.scores) if score.reward is not None else None for score in scores],
            *([[score.steps if score.reward is not None else None for score in scores]] if self.steps else []),
            [score.status.value for score in scores],
            [score.reason and score.reason.value for score in scores],
            [score.prompt_tokens for score in scores],
            [score.truncated for score in scores],
            *(_votes(scores) if self.votes else []),
            *([[list(map(_told, score.trace)) for score in scores]] if self.trace else []),
            *([[score.reasoned for score in scores]] if REASONED in self.flags else []),
        ]
        ours = [pa.array(column, field.type) for column, field in zip(values, self.ours, strict=True)]
        return pa.table([*carried.columns, *ours], self.schema)


_DRAWN = [(CANDIDATE, pa.string()), (FINISH_REASON, pa.string()), (CANDIDATE_TOKENS, pa.int32())]
_LINEAGE = [(PARENT, pa.string()), (FEEDBACK, pa.string())]


def _texts(drawn: Sequence[Drawn | None]) -> list[Sequence[Any]]:
    """A candidate that was never drawn has no text; what isn't Unicode can't stand in a column."""
    there = [one if one is not None and one.finish_reason is not None else None for one in drawn]
    return [
        [one and one.text.encode("utf-8", "replace").decode() for one in there],
        [one and one.finish_reason for one in there],
        [one and one.tokens for one in there],
    ]


_SAID = pa.struct(
    [
        ("shown", pa.list_(pa.string())),
        ("principle", pa.string()),
        ("text", pa.string()),
        ("finish_reason", pa.string()),
        ("vote", pa.float64()),
        ("reason", pa.string()),
    ]
)
"""What a judge wrote once, about which responses as they were shown, and what was read in it."""


def _votes(scores: Sequence[Score]) -> list[Sequence[Any]]:
    return [
        [score.votes if score.reward is not None else None for score in scores],
        [score.completion_tokens for score in scores],
    ]


def _told(said: JudgeAnswer) -> dict[str, Any]:
    # What isn't Unicode can't stand in a column; a judge's tokens may end in the middle of a character.
    text = said.text.encode("utf-8", "replace").decode()
    return {**asdict(said), "text": text, "shown": list(said.shown), "reason": said.reason and said.reason.value}


def carried_columns(files: Sequence[InputFile], sample: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """What is carried over: every column of Parquet files, or the raw record and the flat scalars of JSON rows."""
    kinds = {file.kind is FileKind.PARQUET for file in files}
    if len(kinds) > 1:
        raise SourceError("the input mixes Parquet with JSON files; score them into two folders")
    if kinds == {True}:
        return _unified(files)
    return pa.schema([(RECORD, pa.large_binary()), *_flat_scalars(sample)])


def _unified(files: Sequence[InputFile]) -> pa.Schema:
    schema = pa.schema([])
    for file in files:
        own = _parquet_columns(file)
        try:
            schema = pa.unify_schemas([schema, own])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            other = next((other for other in files if not _agree(_parquet_columns(other), own)), files[0])
            raise SourceError(f"the columns of {other.path} and {file.path} don't go together: {error}") from error
    # A column that a file requires may be missing in another one, and is null there.
    return pa.schema([field.with_nullable(True) for field in schema])


def check_carried(there: pa.Schema, files: Sequence[InputFile]) -> None:
    """Raise `SourceError` for a Parquet file with a column that couldn't be carried as it is in columns of these types.

    A column of nulls can, and so can a struct that lacks fields. A column that isn't there at all is left to others.
    """
    for file in files:
        for field in _parquet_columns(file):
            if field.name in there.names and not _goes_into(there.field(field.name).type, field.type):
                raise SourceError(
                    f"{file.path} has the column {field.name!r} as {field.type}, and the run that it is appended to has it "
                    f"as {there.field(field.name).type}; convert the file, or score it into a new folder"
                )


def _goes_into(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of the other type are the same values in a column of the first."""
    try:
        both = pa.unify_schemas([pa.schema([("", kind)]), pa.schema([("", other)])])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return bool(both.field(0).type == kind)


def _parquet_columns(file: InputFile) -> pa.Schema:
    with open_read(file.path) as stream:
        schema = pq.read_schema(stream).remove_metadata()
    if repeated := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise SourceError(f"{file.path} has more than one column {repeated[0]!r}; rename all but one")
    if taken := sorted(RESERVED.intersection(schema.names)):
        raise SourceError(f"{file.path} has a column {taken[0]!r}, a name that Assay needs while it works; rename it there")
    if RECORD not in schema.names:
        return schema
    # Only the raw record of JSON rows is a large binary of this name (`is_json`).
    at = schema.get_field_index(RECORD)
    field = schema.field(at)
    return schema.set(at, field.with_type(pa.binary())) if pa.types.is_large_binary(field.type) else schema


def _agree(one: pa.Schema, other: pa.Schema) -> bool:
    try:
        pa.unify_schemas([one, other])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def _flat_scalars(sample: Sequence[Mapping[str, Any]]) -> list[pa.Field]:
    seen: dict[str, set[type]] = {}
    for row in sample:
        for name, value in row.items():
            seen.setdefault(name, set()).update([type(value)] if value is not None else [])
    typed = ((name, _arrow_type(types)) for name, types in seen.items())
    unnamed = {RECORD} | RESERVED
    return [pa.field(name, kind) for name, kind in typed if kind is not None and name not in unnamed and _is_utf8(name)]


def _is_utf8(name: str) -> bool:
    """Whether a column can have this name: JSON lets lone surrogates stand in keys too."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _arrow_type(types: set[type]) -> pa.DataType | None:
    """The column type of a key's values; None for nested, mixed and all-null ones, which live in the record alone."""
    if types <= {int, float} and float in types:
        return pa.float64()
    return {bool: pa.bool_(), int: pa.int64(), str: pa.string()}.get(next(iter(types))) if len(types) == 1 else None


def scalar_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of the frozen type; a value that doesn't fit it is null here, and whole in the record."""
    try:
        return pa.array([value if _fits(value, kind) else None for value in values], kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return pa.array([value if _fits(value, kind) and _storable(value, kind) else None for value in values], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return type(value) in (int, float)
    return type(value) is {pa.bool_(): bool, pa.int64(): int, pa.string(): str}[kind]


def _storable(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return False
    return True
