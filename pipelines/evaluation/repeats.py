"""Counts the rows that are there twice: files are joined by mistake, and a converter of JudgeBench wrote half of it again.

The codes of benchmarks count each row, and so do figures here: without repeated rows they would be those of another file.
Rows are told apart by a hash of 64 bits: of a million different rows, two have the same one in 3 of 100 million files.
"""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from pipelines.evaluation.benchmark import Item


class Repeats:
    """Counts repeated rows, 8 bytes each."""

    def __init__(self) -> None:
        self._contents = array("Q")
        self._rows = 0

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items as they are, each taken in on its way."""
        for item in items:
            self._rows += 1
            if item.content is not None:
                self._contents.append(item.content)
            yield item

    @property
    def count(self) -> int | None:
        """The number of rows that repeat an earlier one; None if no row's texts are known."""
        return len(self._contents) - len(np.unique(np.frombuffer(self._contents, np.uint64))) if self._contents else None

    @property
    def note(self) -> str | None:
        """A sentence for people, if rows are repeated."""
        if not self.count:
            return None
        return (
            f"{self.count:,} of {self._rows:,} rows repeat an earlier row's prompt, responses and labels; each counts, as "
            "in the benchmarks' own codes, and the intervals take each for an item of its own."
        )
