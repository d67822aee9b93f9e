"""What a worker of the filter does with a group of parts: judge each response, count what is kept, or write it.

A response is *met* if it meets the condition, a *candidate* if it is also scored and has a number to be ranked by. A
selection chooses among candidates; without one, what is met is kept.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from actors.errors import AuditError, SettingsError
from actors.records import Status
from pipelines.filtering.exact_selection import GROUP, TIE, VALUE
from pipelines.filtering.writers import Target
from pipelines.scored_corpus import output_folder
from pipelines.scored_corpus.columns import (
    PROMPT_HASH,
    REASON,
    RESPONSE,
    REWARD,
    ROW,
    SCORES,
    STATUS,
    VOTES,
    WITHIN_ROW,
    Columns,
)
from pipelines.scored_corpus.expressions import Condition, Evaluator, Ranking
from pipelines.scored_corpus.parts import Part, Parts, read_tables
from pipelines.settings.run_settings import ChoiceSettings
from pipelines.storage.lease import ticket

CONDITION, NO_VALUE = "condition", "no_value"
"""Why a scored response isn't kept, beside what its selection says; the others aren't for their status and reason."""

_MET = "met"

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class KeepSummary:
    """Counts of a filtered corpus. `kept_rows` are the input rows with at least one kept response.

    Every response is counted once: `responses == kept + sum(not_kept.values())`. `selection` says where a selection over
    the whole corpus made its cut, `made_up` that the numbers are the fake engine's.
    """

    rows: int = 0
    responses: int = 0
    kept: int = 0
    kept_rows: int = 0
    not_kept: Mapping[str, int] = field(default_factory=dict)
    selection: Mapping[str, Any] | None = None
    made_up: bool = False

    def __add__(self, other: "KeepSummary") -> "KeepSummary":
        return KeepSummary(
            self.rows + other.rows,
            self.responses + other.responses,
            self.kept + other.kept,
            self.kept_rows + other.kept_rows,
            dict(sorted((Counter(self.not_kept) + Counter(other.not_kept)).items(), key=lambda pair: (-pair[1], pair[0]))),
        )

    def as_json(self) -> dict[str, Any]:
        """For `filter.json` and for `--json`."""
        told = asdict(self)
        return told if self.made_up else {name: value for name, value in told.items() if name != "made_up"}


class Numbered(NamedTuple):
    """A part, and its number among all parts."""

    number: int
    part: Part


@dataclass(frozen=True)
class Group:
    """Neighbouring parts that one task reads."""

    parts: tuple[Numbered, ...]


@dataclass(frozen=True)
class EvaluatedRows:
    """Some rows of a part, from `first` on, and what was found out about each."""

    part: int
    first: int
    table: pa.Table
    met: Mask
    answers: pa.Table

    @functools.cached_property
    def values(self) -> NDArray[np.float64]:
        """What each is ranked by; NaN for no candidate."""
        found = self.answers.column(VALUE)
        return np.where(self.met, pc.fill_null(found, float("nan")).to_numpy(), np.nan)

    @functools.cached_property
    def ties(self) -> NDArray[np.uint64]:
        """What decides among equal values."""
        return np.asarray(self.answers.column(TIE).to_numpy())


class Selection(Protocol):
    """Chooses among candidates."""

    def reasons(self, judged: EvaluatedRows) -> pa.Array:
        """For each row null if it is chosen, or why it isn't; what it says of rows that are no candidates is ignored."""


@dataclass(frozen=True)
class ResponseEvaluator:
    """What is found out about each response, whose columns have the prefix. Without a ranking there is no selection."""

    prefix: str
    condition: Condition | None
    ranking: Ranking | None
    group_by: str | None

    @classmethod
    def of(cls, choice: ChoiceSettings, prefix: str, schema: pa.Schema, *, within_row: bool = False) -> "ResponseEvaluator":
        """The judge of a choice, checked against the columns that there are.

        Raises `ExpressionError`, and `SettingsError` if responses of several rows would be ranked by rewards that mean
        something `within_row` alone.
        """
        selects = any(limit is not None for limit in (choice.top_fraction, choice.quantile, choice.top_k))
        ranking = Ranking.check(choice.by or _quoted(prefix + REWARD), schema) if selects else None
        ours = {prefix + name for name in (REWARD, SCORES, VOTES)}
        if ranking is not None and within_row and choice.per != "row" and ours.intersection(ranking.columns):
            raise SettingsError(
                f"{WITHIN_ROW}: --top-k with --per row chooses in each row, and --by ranks by a number of your own"
            )
        return cls(
            prefix,
            Condition.check(choice.keep, schema) if choice.keep is not None else None,
            ranking,
            prefix + (ROW if choice.per == "row" else PROMPT_HASH) if choice.top_k is not None else None,
        )

    @property
    def columns(self) -> set[str]:
        """The columns that judging needs."""
        names = {self.prefix + name for name in (ROW, STATUS, REASON)}
        if self.ranking:
            names |= {self.prefix + RESPONSE, *self.ranking.columns}
        return names | set(self.condition.columns if self.condition else ()) | ({self.group_by} if self.group_by else set())

    def evaluator(self) -> Evaluator:
        """What judges tables."""
        expressions = {_MET: self.condition.text if self.condition else "true"}
        if self.ranking:
            row, name = (_quoted(self.prefix + column) for column in (ROW, RESPONSE))
            expressions[VALUE] = f"cast(({self.ranking.text}\n) as double)"
            # A hash of which response it is, the same in every version and on every machine.
            expressions[TIE] = f"md5_number_lower({row} || ' ' || {name})"
        if self.group_by:
            group = _quoted(self.group_by)
            expressions |= dict(zip(GROUP, (f"md5_number_upper({group})", f"md5_number_lower({group})"), strict=True))
        flat = {name for checked in (self.condition, self.ranking) if checked for name in checked.flat}
        return Evaluator(expressions, sorted(self.columns), sorted(flat))

    def judged(self, part: int, first: int, table: pa.Table, evaluate: Evaluator) -> EvaluatedRows:
        """Some rows of a part, from `first` on."""
        answers = evaluate(table)
        met = pc.fill_null(answers.column(_MET), False).to_numpy()
        if self.ranking:
            met = met & pc.equal(table.column(self.prefix + STATUS), Status.SCORED.value).to_numpy()
        return EvaluatedRows(part, first, table, met, answers)


@dataclass(frozen=True)
class FilterStep:
    """What a worker needs."""

    parts: Parts
    columns: Columns
    judge: ResponseEvaluator
    kept: Target | None
    rest: Target | None

    @property
    def targets(self) -> list[Target]:
        """Where rows are written, if anywhere."""
        return [target for target in (self.kept, self.rest) if target]

    @property
    def reads(self) -> list[str]:
        """The columns of the parts that are read."""
        wanted = self.judge.columns.union(*(target.reads for target in self.targets))
        return [name for name in self.columns.schema.names if name in wanted]

    def without_targets(self) -> "FilterStep":
        """The step of a pass that only looks."""
        return replace(self, kept=None, rest=None)

    def held(self) -> "FilterStep":
        """The step for workers of this process, which holds the folders that they write."""
        kept, rest = (own and replace(own, ticket=ticket(own.folder)) for own in (self.kept, self.rest))
        return replace(self, kept=kept, rest=rest)

    def judged(self, source: Group) -> Iterator[EvaluatedRows]:
        """The parts of a group, table by table."""
        evaluate = self.judge.evaluator()
        for numbered in source.parts:
            yield from self.judged_part(numbered, evaluate)

    def judged_part(self, numbered: Numbered, evaluate: Evaluator) -> Iterator[EvaluatedRows]:
        """A part, table by table."""
        first = 0
        for table in read_tables(self.parts.path(numbered.part), self.reads):
            yield self.judge.judged(numbered.number, first, table, evaluate)
            first += table.num_rows


@dataclass(frozen=True)
class Split:
    """Some rows of a part. `first` marks those of the kept that are the first of their input row."""

    kept: pa.Table
    first: pa.Array
    rest: pa.Table
    why: pa.Array

    @property
    def summary(self) -> KeepSummary:
        """Its counts; the input rows are counted by the part's name."""
        reasons = {pair["values"]: pair["counts"] for pair in pc.value_counts(self.why).to_pylist()}
        kept, rest = self.kept.num_rows, self.rest.num_rows
        return KeepSummary(0, kept + rest, kept, self.first.true_count, reasons)


@dataclass(frozen=True)
class Output:
    """What one task writes: the groups whose rows go to the files of one number."""

    index: int
    groups: tuple[Group, ...]


def filter_group(step: FilterStep, selection: Selection | None, output: Output) -> KeepSummary:
    """Filter groups of parts into files of one number, if there are targets, and note that it is done.

    Done again, it writes the same.
    """
    evaluate = step.judge.evaluator()
    summary = KeepSummary()
    with ExitStack() as files:
        kept = step.kept and files.enter_context(step.kept.open(output.index))
        rest = step.rest and files.enter_context(step.rest.open(output.index))
        for numbered in (numbered for group in output.groups for numbered in group.parts):
            seen = KeepSummary(rows=numbered.part.counts.rows)
            for split in _splits(step, selection, numbered, evaluate):
                seen += split.summary
                if kept:
                    kept.write(split.kept if kept.target.fields else split.kept.filter(split.first))
                if rest:
                    rest.write(split.rest.append_column(rest.target.why, split.why))
            if seen.responses != numbered.part.counts.responses:
                part = numbered.part
                raise AuditError(f"{part.name} holds {seen.responses} responses, and its name says {part.counts}")
            summary += seen
    for target in step.targets:
        output_folder.note_done(target.folder, output_folder.numbered(output.index), summary.as_json())
    return summary


def _splits(step: FilterStep, selection: Selection | None, numbered: Numbered, evaluate: Evaluator) -> Iterator[Split]:
    row, last_row = step.columns.prefix + ROW, None
    for judged in step.judged_part(numbered, evaluate):
        why = _why(step, selection, judged)
        mask = pc.is_null(why)
        kept, rest = judged.table.filter(mask), judged.table.filter(pc.invert(mask))
        # The responses of a row are neighbours, so a row is new where it isn't the one before.
        rows = kept.column(row).to_pylist()
        first = pa.array([now != before for now, before in zip(rows, [last_row, *rows], strict=False)], pa.bool_())
        last_row = rows[-1] if rows else last_row
        yield Split(kept, first, rest, pc.drop_null(why))


def _why(step: FilterStep, selection: Selection | None, judged: EvaluatedRows) -> pa.Array:
    """Why each of the rows isn't kept; null for those that are."""
    status, reason = (judged.table.column(step.columns.prefix + name).combine_chunks() for name in (STATUS, REASON))
    unscored = pc.binary_join_element_wise(status, pc.fill_null(reason, "?"), ": ")
    why_not_met = pc.if_else(pc.equal(status, Status.SCORED.value), CONDITION, unscored)
    if selection is None:
        why_met = pa.nulls(len(status), pa.string())
    else:
        unranked = pa.array(np.isnan(judged.values))
        why_met = pc.if_else(unranked, NO_VALUE, selection.reasons(judged))
    return pc.if_else(pa.array(judged.met), why_met, why_not_met)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
