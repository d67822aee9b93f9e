"""The work of a filter's worker on a group of parts: evaluate each response, and count or write the kept ones.

A response is *met* if it meets the condition; a *candidate* is also scored, and has a number to be ranked by. A selection
chooses among candidates; without a selection, all responses that are met are kept.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from actors.errors import SettingsError
from actors.records import Status
from pipelines.data.storage.lease import ticket
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
from pipelines.results.filtering.writers import Target
from pipelines.settings.run_settings import ChoiceSettings

CONDITION, NO_VALUE = "condition", "no_value"
"""Reasons why a scored response isn't kept, beside those of its selection. Unscored ones have their status and reason."""

_MET = "met"
GROUP = ("group_high", "group_low")
VALUE = "value"
TIE = "tie"
"""Columns of a ranking's results: the halves of the group's 128-bit digest, the number ranked by, and the hash that decides
among equal ones."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class KeepSummary:
    """Counts of a filtered corpus. `kept_rows` are the input rows with at least one kept response.

    `held` are the responses that these rows hold themselves, kept or not: none, if a policy wrote them. `left_fields` are
    counts of the rows of single responses without a field of the input (`count_left`); `mixed`: fields of theirs have
    values of types that don't go together.

    Every response is counted once: `responses == kept + sum(not_kept.values())`. `selection` describes a selection over
    the whole corpus and its boundary. `made_up`: the rewards are the fake engine's.
    """

    rows: int = 0
    responses: int = 0
    kept: int = 0
    kept_rows: int = 0
    not_kept: Mapping[str, int] = field(default_factory=dict)
    selection: Mapping[str, Any] | None = None
    made_up: bool = False
    held: int = 0
    left_fields: Mapping[str, int] = field(default_factory=dict, compare=False)  # a pass that only counts has none
    mixed: bool = field(default=False, compare=False)

    def __add__(self, other: "KeepSummary") -> "KeepSummary":
        # `selection` and `made_up` are of the whole run, not of a group: they are set once all groups are added.
        return KeepSummary(
            self.rows + other.rows,
            self.responses + other.responses,
            self.kept + other.kept,
            self.kept_rows + other.kept_rows,
            dict(sorted((Counter(self.not_kept) + Counter(other.not_kept)).items(), key=lambda pair: (-pair[1], pair[0]))),
            held=self.held + other.held,
            left_fields=dict(Counter(self.left_fields) + Counter(other.left_fields)),
            mixed=self.mixed or other.mixed,
        )

    def as_json(self) -> dict[str, Any]:
        """For `filter.json` and for `--json`."""
        omitted = [name for name in ("made_up", "left_fields", "mixed") if not getattr(self, name)]
        return {name: value for name, value in asdict(self).items() if name not in omitted}


class NumberedPart(NamedTuple):
    """A part, and its number among all parts."""

    number: int
    part: Part


@dataclass(frozen=True)
class Group:
    """Neighbouring parts that one task reads."""

    parts: tuple[NumberedPart, ...]


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
        """The number that each response is ranked by; NaN if it is no candidate."""
        # NaN means "no candidate" from here on: not met, no number (null), or a number that is NaN itself.
        values = self.answers.column(VALUE)
        return np.where(self.met, pc.fill_null(values, float("nan")).to_numpy(), np.nan)

    @functools.cached_property
    def ties(self) -> NDArray[np.uint64]:
        """The ties: hashes that decide among equal values, uint64."""
        return np.asarray(self.answers.column(TIE).to_numpy())


class Selection(Protocol):
    """Chooses among candidates."""

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
        selects = any(limit is not None for limit in (choice.top_fraction, choice.quantile, choice.top_k))
        ranking = Ranking.check(choice.by or quoted(prefix + REWARD), schema) if selects else None
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
        """The columns that evaluation needs."""
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
        """Evaluate rows of a part, from index `first` on."""
        answers = evaluate(table)
        # SQL's three values: a condition on a null score is null, and is not met.
        met = pc.fill_null(answers.column(_MET), False).to_numpy()
        if self.ranking:
            met = met & pc.equal(table.column(self.prefix + STATUS), Status.SCORED.value).to_numpy()
        return EvaluatedRows(part, first, table, met, answers)


@dataclass(frozen=True)
class FilterStep:
    """The settings of a filter that a worker needs. Small and picklable."""

    source: ResponsesOf
    columns: Columns
    evaluator: ResponseEvaluator
    kept: Target | None
    rest: Target | None

    @property
    def targets(self) -> list[Target]:
        """The outputs: none, kept rows, the rest, or both."""
        return [target for target in (self.kept, self.rest) if target]

    @property
    def reads(self) -> list[str]:
        """The columns to read from the parts."""
        needed = self.evaluator.columns.union(*(target.reads for target in self.targets))
        return [name for name in self.columns.schema.names if name in needed]

    def without_targets(self) -> "FilterStep":
        """The step of a pass that counts and writes nothing."""
        return replace(self, kept=None, rest=None)

    def with_tickets(self) -> "FilterStep":
        """The step for workers of this process, with the tickets of its leases on the output folders."""
        kept, rest = (target and replace(target, ticket=ticket(target.folder)) for target in (self.kept, self.rest))
        return replace(self, kept=kept, rest=rest)

    def evaluate(self, data: Group) -> Iterator[EvaluatedRows]:
        """Evaluate the parts of a group, table by table (see `selection.SourceEvaluator`)."""
        evaluate = self.evaluator.compile()
        for numbered in data.parts:
            yield from self.evaluate_part(numbered, evaluate)

    def evaluate_part(self, numbered: NumberedPart, evaluate: Evaluator) -> Iterator[EvaluatedRows]:
        """Evaluate a part, table by table."""
        first = 0
        for table in self.source.tables(numbered.part, self.reads):
            yield self.evaluator.evaluate(numbered.number, first, table, evaluate)
            first += table.num_rows


@dataclass(frozen=True)
class Split:
    """Rows of a part, split into kept ones and the rest with the reasons (`why`).

    `ids` are the input rows of all responses, `kept_ids` those of the kept ones. `first` marks the kept responses that are
    the first kept of their row. `mask` is true where a response is kept.
    """

    ids: Sequence[str]
    kept_ids: Sequence[str]
    kept: pa.Table
    first: pa.Array
    rest: pa.Table
    why: pa.Array
    mask: Mask

    @property
    def summary(self) -> KeepSummary:
        """The counts, without the input rows: these are taken from the part's name."""
        reasons = {pair["values"]: pair["counts"] for pair in pc.value_counts(self.why).to_pylist()}
        kept, rest = self.kept.num_rows, self.rest.num_rows
        return KeepSummary(0, kept + rest, kept, self.first.true_count, reasons)


@dataclass(frozen=True)
class Output:
    """The groups whose rows one task writes into the files of number `index`."""

    index: int
    groups: tuple[Group, ...]


def filter_group(step: FilterStep, selection: Selection | None, output: Output) -> KeepSummary:
    """Filter the groups of an output; write its files if the step has targets, and note the output as done.

    Idempotent: a retry writes the same.
    """
    evaluate = step.evaluator.compile()
    summary, note = KeepSummary(), _HeldResponses(step)
    with ExitStack() as files:
        kept = step.kept and files.enter_context(step.kept.open(output.index))
        rest = step.rest and files.enter_context(step.rest.open(output.index))
        for numbered in (numbered for group in output.groups for numbered in group.parts):
            part_summary, masks = KeepSummary(rows=step.source.counts(numbered.part)[0]), [np.zeros(0, np.bool_)]
            responses, kept_responses = Counter[str](), Counter[str]()
            for split in _splits(step, selection, numbered, evaluate):
                part_summary += split.summary
                masks.append(split.mask)
                responses.update(split.ids)
                kept_responses.update(split.kept_ids)
                if kept:
                    kept.write(_kept_rows(kept.target, split))
                if rest:
                    rest.write(split.rest.append_column(rest.target.why, split.why))
            note.add(numbered.part, np.concatenate(masks), responses, kept_responses)
            row_responses = 0 if step.columns.drawn else _count_held(step, numbered.part, responses, kept_responses)
            summary += replace(part_summary, held=row_responses)
        if kept:
            summary = replace(summary, left_fields=dict(kept.own_fields.left), mixed=kept.own_fields.mixed)
    for target in step.targets:
        note.write(target, output.index)
        output_folder.note_done(target.folder, output_folder.result_name(output.index), summary.as_json())
    return summary


def _count_held(step: FilterStep, part: Part, responses: Mapping[str, int], kept: Mapping[str, int]) -> int:
    """The number of responses in the input rows of those that are kept; all of them, whatever was filtered before."""
    if step.source.kept is not None:
        row = step.columns.prefix + ROW
        tables = step.source.all_tables(part, [row])
        responses = Counter(row_id for table in tables for row_id in table.column(row).to_pylist())
    return sum(responses[row_id] for row_id in kept)


def _kept_rows(target: Target, split: Split) -> pa.Table:
    # Without our fields a kept row is its input row: once, however many of its responses are kept.
    return split.kept if target.fields or target.responses else split.kept.filter(split.first)


class _HeldResponses:
    """The responses that each side of an output holds, for commands that read the result (`kept_responses`)."""

    def __init__(self, step: FilterStep) -> None:
        self._step = step
        self._sides: dict[str, list[tuple[Part, KeptInPart]]] = {"kept": [], "rest": []}

    def add(self, part: Part, mask: Mask, responses: Mapping[str, int], kept: Mapping[str, int]) -> None:
        """Add the responses of a part: `mask` tells which are kept, the others how many are read and kept of each row."""
        if not self._step.targets:
            return
        earlier = self._step.source.kept
        # Indices are those in the part, also of what is filtered again: then only some responses of the part are read.
        indices = np.arange(mask.size) if earlier is None else earlier.of_part(part).at
        rest_rows = sum(count > kept.get(row_id, 0) for row_id, count in responses.items())
        self._sides["kept"].append((part, KeptInPart(indices[mask], len(kept))))
        self._sides["rest"].append((part, KeptInPart(indices[~mask], rest_rows)))

    def write(self, target: Target, number: int) -> None:
        """Write the note of one side."""
        write_note(target.folder, number, self._sides[target.stem])


def _splits(step: FilterStep, selection: Selection | None, numbered: NumberedPart, evaluate: Evaluator) -> Iterator[Split]:
    row = step.columns.prefix + ROW
    last_row = None
    for rows in step.evaluate_part(numbered, evaluate):
        why = _reasons(step, selection, rows)
        mask = pc.is_null(why)
        kept, rest = rows.table.filter(mask), rows.table.filter(pc.invert(mask))
        # The responses of a row are neighbours, so a row is new where its id differs from the one before. They may lie in
        # two tables of the part: `last_row` is carried over.
        ids, kept_ids = rows.table.column(row).to_pylist(), kept.column(row).to_pylist()
        first = [row_id != previous for row_id, previous in zip(kept_ids, [last_row, *kept_ids], strict=False)]
        last_row = kept_ids[-1] if kept_ids else last_row
        is_kept = mask.to_numpy(zero_copy_only=False)
        yield Split(ids, kept_ids, kept, pa.array(first, pa.bool_()), rest, pc.drop_null(why), is_kept)


def _reasons(step: FilterStep, selection: Selection | None, rows: EvaluatedRows) -> pa.Array:
    """For each row null if it is kept, else the reason why it isn't."""
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
