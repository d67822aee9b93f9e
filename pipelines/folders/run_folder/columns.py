"""The columns of a scored corpus: those that Assay adds, beside those carried over from the input (`carried_columns`)."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from actors.errors import SourceError
from actors.records import JudgeAnswer, Score
from actors.scorers.policy import GeneratedCandidate
from pipelines.data.corpus.readers import RECORD
from pipelines.folders.run_folder.examples import Example, note

T = TypeVar("T")

ROW, RESPONSE, PROMPT_HASH = "row", "response_name", "prompt_hash"
SHAPE = "shape"  # the shape of the input row; only in runs over mixed corpora
REWARD, SCORES, STATUS, REASON = "reward", "scores", "status", "reason"
STEPS, PROMPT_TOKENS, TRUNCATED = "steps", "prompt_tokens", "truncated"
VOTES, COMPLETION_TOKENS, TRACE = "votes", "completion_tokens", "trace"
CRITERIA_SCORES = "criteria_scores"  # of rows with criteria of their own, the value of each by its name
SUSPECT = "suspect"
KEPT, STAGE = "kept", "stage"  # of a cascade: whether the response is kept, and the name of the model that decided
REASONED = "reasoned"  # whether a response, or a turn before it, held reasoning; only in runs that strip or keep reasoning
# Whether the score of a response was taken from a store, or is that of an equal request; only in runs with `--store`.
FROM_STORE = "from_store"
# The text of a response as it was judged: without reasoning that was stripped; null where it couldn't be read.
TEXT = "response_text"
CANDIDATE, FINISH_REASON, CANDIDATE_TOKENS = "candidate", "finish_reason", "candidate_tokens"
PARENT, FEEDBACK = "parent", "feedback"


WITHIN_ROW = (
    "the rewards here are of a judge that compares the responses of a row with each other (win rates, Bradley-Terry, a "
    "knock-out, the better of two), or of a cascade's models, so those of different rows can't be compared"
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
    text: bool = False  # Whether parts hold the text of each response. They do unless a setting leaves it out.
    row_outputs: bool = False  # whether responses have outputs whose names differ by row
    # Whether rewards compare the responses of a row with each other: those of different rows aren't comparable.
    within_row: bool = False
    staged: bool = False  # whether each row's rewards are those of one of several models, which is named

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
        scores = pa.struct([(name, pa.float64()) for name in self.outputs])
        text, number, numbers = pa.string(), pa.float64(), pa.list_(pa.float64())
        # Name, type and value in one entry each: the schema and the values can't be in different orders.
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
            _Column(CRITERIA_SCORES, pa.map_(text, number), self._row_outputs, self.row_outputs),
            _Column(STEPS, numbers, lambda response: response.if_scored(response.score.steps), self.steps),
            _Column(STATUS, text, attrgetter("score.status.value")),
            _Column(REASON, text, lambda response: response.score.reason and response.score.reason.value),
            _Column(PROMPT_TOKENS, pa.int32(), attrgetter("score.prompt_tokens")),
            _Column(TRUNCATED, pa.bool_(), attrgetter("score.truncated")),
            _Column(VOTES, numbers, lambda response: response.if_scored(response.score.votes), self.votes),
            _Column(COMPLETION_TOKENS, pa.int32(), attrgetter("score.completion_tokens"), self.votes),
            _Column(TRACE, pa.list_(_TRACE_ENTRY), lambda response: [*map(_trace_entry, response.score.trace)], self.trace),
            *(_Column(name, pa.bool_(), attrgetter(f"score.{name}")) for name in self.flags),
            _Column(STAGE, text, attrgetter("score.stage"), self.staged),
        ]
        return [column for column in columns if column.is_present]

    def _row_outputs(self, response: "_Response") -> dict[str, float] | None:
        further = {name: value for name, value in response.score.scores.items() if name not in self.outputs}
        return response.if_scored(further)

    def as_objects(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Rows of Python's values with the criteria's values by name, which Arrow gives as pairs."""
        name = self.prefix + CRITERIA_SCORES
        for row in rows if self.row_outputs else ():
            if row.get(name) is not None:
                row[name] = dict(row[name])
        return rows

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.carried, *self.ours])

    @property
    def ours_first(self) -> pa.Schema:
        """All columns that SQL can name. A carried column whose name differs from one of ours only in case is left out."""
        ours = {name.casefold() for name in self.ours.names}
        return pa.schema([*self.ours, *(field for field in self.carried if field.name.casefold() not in ours)])

    def collision(self, names: Iterable[str]) -> str | None:
        """The first of the input's names that equals one of ours, ignoring case as SQL does; None if there is none."""
        ours = (*self.ours.names, *(self.prefix + name for name in self.reserved))
        # SQL ignores case: an input's `Reward` beside our `reward` could not be named in a condition.
        reserved_names = {name.lower() for name in ours} | ({RECORD} if self.is_json else set())
        return next((name for name in names if name.lower() in reserved_names), None)

    @functools.cached_property
    def is_json(self) -> bool:
        return is_json(self.carried)

    def check(self, names: Iterable[str]) -> None:
        """Raise `SourceError` if a carried column, or another name of the input, equals one of ours."""
        carried = self.carried.names[1:] if self.is_json else self.carried.names
        name = self.collision([*carried, *names])
        if name == RECORD:
            raise SourceError(f"the input has a field {RECORD!r}, where Assay keeps the raw record; rename it there")
        if name is not None:
            raise SourceError(
                f"the input has a column {name!r}, which is one of the columns that Assay adds; "
                f"rename ours with a prefix, e.g. --set prefix=judge_ for judge_{name.removeprefix(self.prefix)}"
            )

    def table(
        self,
        repeated: pa.Table,
        rows: Sequence[tuple[str, str, str | None, Score]],
        candidates: Sequence[GeneratedCandidate | None] = (),
        texts: Sequence[str | None] = (),
    ) -> pa.Table:
        """The table of a part, with its examples as metadata.

        `rows` has (row, response name, prompt hash, score) for each response, as does `repeated`.
        `candidates` has what a policy generated, None where nothing was; it is read only if `self.drawn`. `texts` has the
        judged text of each response; it is read only if `self.text`.
        """
        # Lists, and not `repeat`, as `strict` compares lengths: no response may get the text of another one.
        nothing = [None] * len(rows)
        sources = zip(rows, candidates if self.drawn else nothing, texts if self.text else nothing, strict=True)
        responses = [_Response(*row, candidate, text) for row, candidate, text in sources]
        ours = [pa.array(list(map(column.value, responses)), column.type) for column in self._of_response]
        examples = (Example.of(row, name, score, with_text=self.text) for row, name, _, score in rows)
        return pa.table([*repeated.columns, *ours], self.schema.with_metadata(note(examples)))


def is_json(schema: pa.Schema) -> bool:
    """Whether rows are carried as their raw records, as JSON rows are. A Parquet column of this name is no large binary."""
    return RECORD in schema.names and pa.types.is_large_binary(schema.field(RECORD).type)


class _Response(NamedTuple):
    row: str
    name: str
    prompt_hash: str | None
    score: Score
    candidate: GeneratedCandidate | None
    text: str | None

    @property
    def drawn(self) -> GeneratedCandidate | None:
        # A candidate that an endpoint never gave has no reason for its end, and its columns are null.
        return self.candidate if self.candidate is not None and self.candidate.finish_reason is not None else None

    def if_scored(self, value: T) -> T | None:
        return value if self.score.reward is not None else None


class _Column(NamedTuple):
    name: str
    type: pa.DataType
    value: Callable[[_Response], Any]
    is_present: bool = True


# One text of a judge: the responses in the order shown, the text, and the vote that was parsed from it.
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


def _utf8(text: str) -> str:
    # The text with lone surrogates replaced, as a last token that ends inside a character has them: Arrow takes none.
    return text.encode("utf-8", "replace").decode()


def _trace_entry(judge_answer: JudgeAnswer) -> dict[str, Any]:
    return {
        **asdict(judge_answer),
        "text": _utf8(judge_answer.text),
        "shown": list(judge_answer.shown),
        "reason": judge_answer.reason and judge_answer.reason.value,
    }
