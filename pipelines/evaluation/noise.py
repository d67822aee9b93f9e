"""Which items are decided by less than the noise of batching, as far as the run that scored them has measured it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from actors.scorers.batch_noise import BatchNoise
from pipelines.evaluation.benchmark import GradedItem
from pipelines.evaluation.statistics.margins import closest

_MOST_NAMED = 5


@dataclass
class NoiseReport:
    """Counts the graded items of which two rewards that the grade compares differ, and by at most `difference`.

    `difference` is twice the largest that a response's reward moved by in another batch, since both rewards of a comparison
    may move. Equal rewards aren't counted: equal texts have the same one in every run. `names` are those of the first rows.
    """

    difference: float
    responses: int
    compared: int = 0
    items: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, work: Mapping[str, Any]) -> Self | None:
        """For a run's work, as its summary has it; None if it measured none: of a judge's texts, or at an endpoint."""
        if not work.get("noise"):
            return None
        noise = BatchNoise(**work["noise"])
        return cls(2 * noise.largest, noise.responses)

    def add(self, item: GradedItem) -> None:
        """Take in an item."""
        difference = closest(item)
        if difference is None:
            return
        self.compared += 1
        if difference <= self.difference:
            self.items += 1
            self.names = (*self.names, item.row)[:_MOST_NAMED]

    @property
    def note(self) -> str | None:
        """A sentence for people; None if nothing is compared."""
        if not self.compared:
            return None
        measured = f"the noise of batching measured in this run ({self.responses:,} responses were asked again, alone)"
        if not self.items:
            return f"No item is decided by {self.difference:.1g} or less, {measured}."
        more = " ..." if self.items > len(self.names) else ""
        return (
            f"{self.items:,} of {self.compared:,} items are decided by {self.difference:.1g} or less, {measured}; another run may "
            f"decide them otherwise: {', '.join(self.names)}{more}"
        )
