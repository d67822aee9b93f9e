"""The work of a filter's worker on a group of parts: evaluate each response, and count or write the kept ones.

A response is *met* if it meets the condition; a *candidate* is also scored, and has a number to be ranked by. A selection
chooses among candidates; without a selection, all responses that are met are kept.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from actors.errors import SettingsError
from actors.records import Status
from actors.text.readable import Readable
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.columns import (
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
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus.databases import quoted
from pipelines.folders.scored_corpus.expressions import Condition, Evaluator, Ranking
from pipelines.folders.scored_corpus.kept_responses import KeptInPart, write_note
from pipelines.folders.scored_corpus.scored_folder import ResponsesOf
from pipelines.results.filtering.writers import KeptFile, Target, writing
from pipelines.settings.filter_settings import ChoiceSettings

# Reasons why a scored response isn't kept, beside those of its selection. Unscored ones have their status and reason.
CONDITION, NO_VALUE = "condition", "no_value"

# Columns of what is evaluated: whether the condition is met; of a ranking the number, the hash that decides among equals,
# and the halves of the group's 128-bit digest, for which Arrow has no type of integers.
_MET, VALUE, TIE, GROUP = "met", "value", "tie", ("group_high", "group_low")

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class FilterSummary(Readable):
    """Counts of a filtered corpus. `kept_rows` are the input rows with at least one kept response.

    Every response is counted once: `responses == kept + sum(not_kept.values())`. `left_fields` are counts of the rows of
    single responses without a field of the input (`count_left`); `mixed`: fields of theirs have values of types that don't
    go together. What follows is of the whole run: `selection` describes a selection and its boundary; `made_up`: the
    rewards are the fake engine's; `several`: input rows hold several responses.
    """

    rows: int = 0
    responses: int = 0
    kept: int = 0
    kept_rows: int = 0
    not_kept: Mapping[str, int] = field(default_factory=dict)
    left_fields: Mapping[str, int] = field(default_factory=dict, compare=False)  # a pass that only counts has none
    mixed: bool = field(default=False, compare=False)
    selection: Mapping[str, Any] | None = None
    made_up: bool = False
    several: bool = False

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "FilterSummary | None":
        """What `as_json` gave; None if another version of Assay, with other fields, wrote it."""
        try:
            return cls(**document)
        except TypeError:  # such an output is written again
            return None

    def __add__(self, other: "FilterSummary") -> "FilterSummary":
        return FilterSummary(
            self.rows + other.rows,
            self.responses + other.responses,
            self.kept + other.kept,
            self.kept_rows + other.kept_rows,
            dict(sorted((Counter(self.not_kept) + Counter(other.not_kept)).items(), key=lambda pair: (-pair[1], pair[0]))),
            dict(Counter(self.left_fields) + Counter(other.left_fields)),
            self.mixed or other.mixed,
        )

    def as_json(self) -> dict[str, Any]:
        """For `filter.json` and for `--json`. What says nothing is left out, but for the counts."""
        omitted = [name for name in ("made_up", "left_fields", "mixed", "several") if not getattr(self, name)]
        return {name: value for name, value in asdict(self).items() if name not in omitted}


class NumberedPart(NamedTuple):
    """A part, and its number among all parts."""

    number: int
    part: Part


Group = tuple[NumberedPart, ...]  # neighbouring parts that one task reads


@dataclass(frozen=True)
class EvaluatedRows:
    """Rows of part number `part`, from index `first` on, with the results of the SQL expressions (`answers`).

    `met` is true where a response meets the condition and, if there is a ranking, was scored.
    """

    part: int
    first: int
    table: pa.Table
    met: Mask
    answers: pa.Table

    @functools.cached_property
    def values(self) -> NDArray[np.float64]:
        # NaN means "no candidate" from here on: not met, no number (null), or a number that is NaN itself.
        values = self.answers.column(VALUE)
        return np.where(self.met, pc.fill_null(values, float("nan")).to_numpy(), np.nan)

    @functools.cached_property
    def ties(self) -> NDArray[np.uint64]:
        return np.asarray(self.answers.column(TIE).to_numpy())


class Selection(Protocol):
    """Chooses among candidates: at or above a boundary, or the winners of each group. Small and picklable."""

    def reasons(self, rows: EvaluatedRows) -> pa.Array:
        """For each row null if it is chosen, else the reason. The result for rows that aren't candidates is ignored."""


@dataclass(frozen=True)
class ResponseEvaluator:
    """The SQL to evaluate for each response, whose columns have `prefix`. Without a ranking there is no selection."""

    prefix: str
    condition: Condition | None
    ranking: Ranking | None
    group_by: str | None

    @classmethod
    def of(cls, choice: ChoiceSettings, prefix: str, schema: pa.Schema, *, within_row: bool = False) -> "ResponseEvaluator":
        """The evaluator for the settings of a filter, checked against the columns of the corpus.

        Raises `ExpressionError`, and `SettingsError` if responses of several rows would be ranked by rewards that are
        comparable only `within_row`.
        """
        ranking = Ranking.check(choice.by or quoted(prefix + REWARD), schema) if choice.selections else None
        ours = {prefix + name for name in (REWARD, SCORES, VOTES)}
        if ranking is not None and within_row and choice.per != "row" and ours.intersection(ranking.columns):
            raise SettingsError(
                f"{WITHIN_ROW}: --top-k with --per row chooses in each row, and --by ranks by a number of your own"
            )
        return cls(
            prefix,
            Condition.check(choice.where, schema) if choice.where is not None else None,
            ranking,
            prefix + (ROW if choice.per == "row" else PROMPT_HASH) if choice.top_k is not None else None,
        )

    @property
    def columns(self) -> set[str]:
        names = {self.prefix + name for name in (ROW, STATUS, REASON)}
        if self.ranking:
            names |= {self.prefix + RESPONSE, *self.ranking.columns}
        return names | set(self.condition.columns if self.condition else ()) | ({self.group_by} if self.group_by else set())

    def compile(self) -> Evaluator:
        """The evaluator of tables in this process. It isn't picklable, so each worker compiles its own."""
        expressions = {_MET: self.condition.sql if self.condition else "true"}
        if self.ranking:
            # Cast to double: integers above 2**53 that differ may rank as equals, and their ties decide.
            row, name = (quoted(self.prefix + column) for column in (ROW, RESPONSE))
            # The newline ends a comment (`--`) that the expression may end with.
            expressions[VALUE] = f"cast(({self.ranking.sql}\n) as double)"
            # A hash of the response's id, not DuckDB's `hash`: MD5 is the same in every version and on every machine.
            expressions[TIE] = f"md5_number_lower({row} || ' ' || {name})"
        if self.group_by:
            group = quoted(self.group_by)
            expressions |= dict(zip(GROUP, (f"md5_number_upper({group})", f"md5_number_lower({group})"), strict=True))
        flat = {name for expression in (self.condition, self.ranking) if expression for name in expression.flat}
        return Evaluator(expressions, sorted(self.columns), sorted(flat))

    def evaluate(self, part: int, first: int, table: pa.Table, evaluate: Evaluator) -> EvaluatedRows:
        answers = evaluate(table)
        # SQL's three values: a condition on a null score is null, and is not met.
        met = pc.fill_null(answers.column(_MET), False).to_numpy()
        if self.ranking:
            met = met & pc.equal(table.column(self.prefix + STATUS), Status.SCORED.value).to_numpy()
        return EvaluatedRows(part, first, table, met, answers)


@dataclass(frozen=True)
class FilterStep:
    """What a worker of a filter needs. Small and picklable. Without targets it counts."""

    source: ResponsesOf
    columns: Columns
    evaluator: ResponseEvaluator
    targets: tuple[Target, ...] = ()

    @property
    def reads(self) -> list[str]:
        needed = self.evaluator.columns.union(*(target.reads for target in self.targets))
        return [name for name in self.columns.schema.names if name in needed]

    def evaluate(self, data: Group) -> Iterator[EvaluatedRows]:
        """Evaluate the parts of a group, table by table (see `selection.SourceEvaluator`)."""
        evaluate = self.evaluator.compile()
        for numbered in data:
            yield from self.evaluate_part(numbered, evaluate)

    def evaluate_part(self, numbered: NumberedPart, evaluate: Evaluator) -> Iterator[EvaluatedRows]:
        first = 0
        for table in self.source.tables(numbered.part, self.reads):
            yield self.evaluator.evaluate(numbered.number, first, table, evaluate)
            first += table.num_rows


def filter_group(step: FilterStep, selection: Selection | None, index: int, group: Group) -> tuple[int, FilterSummary]:
    """Filter a group of parts; write its files of number `index` if the step has targets, and note them as done.

    Returns the number, too, as tasks end in any order. Idempotent: a retry writes the same.
    """
    evaluate = step.evaluator.compile()
    summary, held = FilterSummary(), dict[str, list[tuple[Part, KeptInPart]]]({"kept": [], "rest": []})
    with ExitStack() as stack:
        files: dict[str, KeptFile] = {target.stem: stack.enter_context(writing(target, index)) for target in step.targets}
        for numbered in group:
            part_summary, in_part = _filter_part(step, selection, numbered, evaluate, files)
            summary += part_summary
            for side, kept_in_part in in_part.items():
                held[side].append((numbered.part, kept_in_part))
        for file in files.values():
            summary += FilterSummary(left_fields=file.left, mixed=file.mixed)
    # After the files: a task that is killed in between is run again, and writes the same files.
    for target in step.targets:
        write_note(target.folder, index, held[target.stem])
        output_folder.note_done(target.folder, output_folder.result_name(index), summary.as_json())
    return index, summary


def _filter_part(
    step: FilterStep,
    selection: Selection | None,
    numbered: NumberedPart,
    evaluate: Evaluator,
    files: Mapping[str, KeptFile],
) -> tuple[FilterSummary, dict[str, KeptInPart]]:
    """The counts of a part, and which of its responses are on each side; writes them to the `files`."""
    row_column = step.columns.prefix + ROW
    masks, reasons = [np.zeros(0, np.bool_)], Counter[str]()  # an empty one first: a part may have no table at all
    last_rows, row_counts = dict[str, str](), Counter[str]()
    for rows in step.evaluate_part(numbered, evaluate):
        why = _reasons(step, selection, rows)
        why_not_kept = pc.drop_null(why)
        reasons.update(why_not_kept.to_pylist())
        masks.append(pc.is_null(why).to_numpy(zero_copy_only=False))
        for side, mask in (("kept", pc.is_null(why)), ("rest", pc.is_valid(why))):
            table = rows.table.filter(mask)
            # The responses of a row are neighbours, so a row is new where its id differs from the one before. They may lie
            # in two tables of the part: the last row is carried over.
            ids = table.column(row_column).to_pylist()
            is_first = [row != before for row, before in zip(ids, [last_rows.get(side), *ids], strict=False)]
            row_counts[side] += sum(is_first)
            if ids:
                last_rows[side] = ids[-1]
            if side in files:
                files[side].write(table, pa.array(is_first, pa.bool_()), why_not_kept)
    # Indices are those in the part, also of what is filtered again: then only some responses of the part are read.
    earlier = step.source.kept
    is_kept = np.concatenate(masks)
    indices = np.arange(is_kept.size) if earlier is None else earlier.of_part(numbered.part).at
    in_part = {
        "kept": KeptInPart(indices[is_kept], row_counts["kept"]),
        "rest": KeptInPart(indices[~is_kept], row_counts["rest"]),
    }
    rows_read, _ = step.source.counts(numbered.part)
    return FilterSummary(rows_read, is_kept.size, int(is_kept.sum()), row_counts["kept"], reasons), in_part


def _reasons(step: FilterStep, selection: Selection | None, rows: EvaluatedRows) -> pa.Array:
    status, reason = (rows.table.column(step.columns.prefix + name).combine_chunks() for name in (STATUS, REASON))
    status_and_reason = pc.binary_join_element_wise(status, pc.fill_null(reason, "?"), ": ")
    why_not_met = pc.if_else(pc.equal(status, Status.SCORED.value), CONDITION, status_and_reason)
    # The first that holds: condition not met (or, with a ranking, not scored); no number to rank by; not selected.
    if selection is None:
        why_met = pa.nulls(len(status), pa.string())
    else:
        lacks_value = pa.array(np.isnan(rows.values))
        why_met = pc.if_else(lacks_value, NO_VALUE, selection.reasons(rows))
    return pc.if_else(pa.array(rows.met), why_met, why_not_met)
