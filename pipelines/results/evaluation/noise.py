"""Which items are decided by less than the noise of batching, as far as the run that scored them has measured it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.results.evaluation.benchmark import GradedItem
from pipelines.results.evaluation.statistics.margins import differences

_MOST_NAMED = 5  # the first ones are for looking at, and items.parquet has `closest` of all


@dataclass
class NoiseReport:
    """Counts the graded items of which two rewards that the grade compares differ, and by at most `difference`.

    Equal rewards aren't counted: equal texts have the same one in every run. `names` are those of the first such items.
    """

    largest: float
    """By which the two rewards of a response differ that was asked twice, of `responses` that were."""
    responses: int
    difference: float
    compared: int = 0
    items: int = 0
    names: tuple[str, ...] = ()

    def add(self, item: GradedItem) -> None:
        item_differences = differences(item)
        self.compared += bool(item_differences)
        # Equal texts have equal rewards in every batch: a tie isn't decided by noise.
        if any(0 < difference <= self.difference for difference in item_differences):
            self.items += 1
            self.names = (*self.names, item.row)[:_MOST_NAMED]

    @property
    def note(self) -> str | None:
        if not self.compared:
            return None
        count = f"{self.items:,} of {self.compared:,} items are" if self.items else "No item is"
        named = f": {', '.join(self.names)}{' ...' if self.items > len(self.names) else ''}" if self.items else ""
        return (
            f"{count} decided by {self.difference:.1g} or less, the noise of batching in this run ({self.responses:,} "
            f"responses were asked twice, and their rewards differ by up to {self.largest:.1g}){named}"
        )


def noise_of(work: Mapping[str, Any]) -> NoiseReport | None:
    """For a run's work, as its summary has it; None if it measured no noise: of a judge's texts, or at an endpoint.

    Other batches may move the difference of two rewards by twice the largest that was seen, as both may move, and by twice
    that, as the largest of a few is smaller than that of all: of 700 responses, 22 of which are asked twice, twice the
    largest holds 98 % of the differences that moved between two runs, and four times the largest 99.8 %.
    """
    noise = work.get("noise")
    return NoiseReport(**noise, difference=4 * noise["largest"]) if noise else None
