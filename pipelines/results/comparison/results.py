"""What a comparison of two scored corpora tells, as it is written and returned."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from actors.records import Status
from actors.text.readable import Readable
from pipelines.settings.diff_settings import GateSettings

# Of the document; a reader that knows another one must not guess.
VERSION = 1

VALUE, PERCENTILE = "value", "percentile"


@dataclass(frozen=True)
class ComparedFolder:
    """A folder: its run, model, and the number of its responses. `only` are those that the other one doesn't have."""

    folder: str
    run: str
    model: str
    responses: int
    only: int


@dataclass(frozen=True)
class NumberChange:
    """How a number changed, over the responses that have it in both folders.

    `rank_correlation` is Spearman's, null where it isn't defined: `why_not` says why. Differences are second less first, and
    null where the numbers aren't on one scale.
    """

    name: str
    responses: int
    rank_correlation: float | None
    why_not: str | None
    mean_difference: float | None
    mean_absolute_difference: float | None
    largest_difference: float | None


@dataclass(frozen=True)
class StatusChange:
    """How many responses went from one status and reason to another."""

    first: str
    first_reason: str | None
    second: str
    second_reason: str | None
    responses: int


@dataclass(frozen=True)
class KeptChange:
    """What a filter would keep: of the responses in both folders, in each of them; and of those in one only."""

    filter: str
    both: int
    first_only: int
    second_only: int
    first_unmatched: int
    second_unmatched: int

    @property
    def changes(self) -> int:
        return self.first_only + self.second_only


@dataclass(frozen=True)
class Differences(Readable):
    """Two scored corpora compared. `differs` names the entries of their identities that aren't equal.

    `duplicates` are matched responses whose key another one has, too; `other_prompts` are matched responses whose prompts
    (turns and principles) aren't equal, `number_only` those that have a compared number in one folder only. `unit` is that
    of `moves`: `value`, or `percentile` points of rank, 0 to 100; null where there are no moves. `largest_move` is the
    largest one, without its sign.
    """

    first: ComparedFolder
    second: ComparedFolder
    matched_by: str
    matched: int
    duplicates: int
    other_prompts: int
    number_only: int
    same_model: bool
    differs: Sequence[str]
    status_changes: Sequence[StatusChange]
    numbers: Sequence[NumberChange]
    unit: str | None
    largest_move: float | None
    moves: Sequence[Mapping[str, Any]]
    kept: KeptChange | None
    examples: Mapping[str, Sequence[Mapping[str, Any]]]
    is_made_up: bool
    failures: Sequence[str] = field(default=())
    """What the gates don't let pass: a sentence for each."""

    @property
    def changed_statuses(self) -> int:
        return sum(change.responses for change in self.status_changes)

    @property
    def scored_once(self) -> int:
        # Their numbers are in one folder only, which isn't a second difference: `--max-status-changes` counts them already.
        changes = self.status_changes
        return sum(each.responses for each in changes if (each.first == Status.SCORED) != (each.second == Status.SCORED))

    def as_json(self) -> dict[str, Any]:
        return {"assay_diff": VERSION, **asdict(self)}


def gate_failures(differences: Differences, gates: GateSettings) -> list[str]:
    """What the gates don't let pass, or can't tell.

    What can't be computed fails: a gate that nothing could hold against must not look like one that holds.
    """
    if not gates.is_set:
        return []
    of_numbers = [*_move_failures(differences, gates.max_move), *_rank_failures(differences, gates.min_rank_correlation)]
    return [*of_numbers, *_unmatched_failures(differences, gates)] + [
        f"{count:,} responses {what}, more than {limit:,}"
        for count, what, limit in (
            (differences.changed_statuses, "have another status or reason", gates.max_status_changes),
            (
                differences.kept.changes if differences.kept else 0,
                "would be kept in one and not in the other",
                gates.max_kept_changes,
            ),
        )
        if limit is not None and count > limit
    ]


def _unmatched_failures(differences: Differences, gates: GateSettings) -> list[str]:
    by_status = differences.scored_once if gates.max_status_changes is not None else 0
    counts = {
        "are in one folder only": differences.first.only + differences.second.only,
        "have a number in one folder only": max(0, differences.number_only - by_status),
    }
    limit = gates.max_unmatched or 0  # any gate that is set implies that all rows are there
    if sum(counts.values()) <= limit:
        return []
    texts = (f"{count:,} responses {what}" for what, count in counts.items() if count)
    return [f"{' and '.join(texts)}, more than {limit:,}"]


def _move_failures(differences: Differences, limit: float | None) -> list[str]:
    if limit is None:
        return []
    if differences.largest_move is None:
        return [f"there are no moves to hold against {limit:g}: {differences.numbers[0].why_not or 'no number is in both'}"]
    if differences.largest_move <= limit:
        return []
    largest = differences.moves[0] if differences.moves else {}  # none are there with `show` 0
    where = f" ({largest['a_row']}, {largest['a_name']})" if largest else ""
    return [f"the largest move is {differences.largest_move:.6g}{where}, in {_UNITS[differences.unit]}, more than {limit:g}"]


_UNITS = {VALUE: "units of the number", PERCENTILE: "percentile points", None: ""}


def _rank_failures(differences: Differences, least: float | None) -> list[str]:
    if least is None:
        return []
    number = differences.numbers[0]
    if number.rank_correlation is None:
        return [f"{number.name} has no rank correlation to hold against {least:g}: {number.why_not}"]
    if number.rank_correlation >= least:
        return []
    return [f"the rank correlation of {number.name} is {number.rank_correlation:.6f}, less than {least:g}"]
