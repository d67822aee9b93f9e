"""What a benchmark is: items in, grades out, and measures as functions of mean grades.

An item is an input row with the rewards of its responses. A benchmark grades it with a few numbers, its cells: whether the
chosen response won, half a credit for a tie, and so on. All of its measures are functions of the means of cells by subset,
so that one definition gives the value, and, with the means of resampled items, its interval.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from actors.text.counted import first_of

Array = npt.NDArray[np.float64]

_MOST_LISTED = 5  # subsets whose counts differ: of RewardBench's 23, five tell which file it isn't
ALL = "all"  # the subset of items whose rows don't name one


@dataclass(frozen=True, slots=True)
class Item:
    """An input row: its flat fields, the rewards of its responses by name, and why the others have none."""

    row: str
    fields: Mapping[str, Any]
    rewards: Mapping[str, float]
    missing: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The model's named outputs for each response that has a reward."""
    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The reward of each step of such a response, if the model judges steps."""
    prompt: str | None = None
    """The hash of the prompt of its first response; None if that couldn't be read."""
    votes: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The rewards by each text of a judge, for each response that has a reward."""
    games: tuple[float, ...] | None = None
    """By how much the first of two responses leads in each order in which a judge saw both, that of the row first.

    None of other models, and of other items; empty if unreadable votes leave open who won.
    """
    content: int | None = None
    """A hash of prompts, responses and labels, but not of the id; None if texts aren't there."""

    @property
    def names(self) -> set[str]:
        return {*self.rewards, *self.missing}  # a response without a reward is one of the item, too


class Grade(NamedTuple):
    """What grades an item: its cells, whether two rewards that they compare are equal, and the margins.

    A margin is the reward of a right response less that of a wrong one; there is one for each two that the grade compares.
    """

    cells: tuple[float, ...]
    tied: bool = False
    margins: Sequence[float] = ()


class GradedItem(NamedTuple):
    """The grade of an item: its subset and what `Grade` has, or without cells the `reason` why it has no grade.

    `of_rows`: the input rows that it consists of. `rewards` by the responses' names.
    """

    of_rows: tuple[Item, ...]
    subset: str
    rewards: Mapping[str, float]
    cells: tuple[float, ...] | None
    tied: bool = False
    margins: Sequence[float] = ()
    reason: str | None = None

    @property
    def row(self) -> str:
        return " ".join(item.row for item in self.of_rows)

    @property
    def prompt(self) -> int:
        """64 bits of the hash of its prompt; without one those of its row's name, which no other item has."""
        prompt = self.of_rows[0].prompt if self.of_rows else None
        return int.from_bytes(hashlib.blake2b((prompt or self.row).encode(), digest_size=8).digest())

    @property
    def content(self) -> int | None:
        # Added up, so that the rows of a prompt id of Ties may come in any order; a row without texts leaves no hash at all.
        contents = [item.content for item in self.of_rows if item.content is not None]
        return sum(contents) % 2**64 if len(contents) == len(self.of_rows) else None


class Ungraded(Exception):
    """An item can't be graded; the text is the reason: `failed: no_verdict`, or a field with an unknown value."""


@dataclass(frozen=True)
class MeanCells:
    """The mean cells of each subset, of shape (..., cells), and how many graded items each has.

    `...` is nothing for the value, and the number of draws where items are resampled. `judged`: the model is a judge that
    writes, for which some benchmarks have another convention than for a reward head; `compared`: it was shown the responses
    of an item together.
    """

    by_subset: Mapping[str, Array]
    counts: Mapping[str, int]
    judged: bool = False
    compared: bool = False
    # How many graded items of each subset have each cell; without it all have.
    cell_counts: Mapping[str, Array] = field(default_factory=dict)

    def count(self, subset: str, cell: int) -> int:
        return int(self.cell_counts[subset][cell]) if subset in self.cell_counts else self.counts[subset]

    def is_lacking(self, cell: int) -> bool:
        """Whether no item has a cell, of any subset: measures of it are none of this model's."""
        return bool(self.cell_counts) and not any(counts[cell] for counts in self.cell_counts.values())

    def pooled(self, subsets: Iterable[str]) -> Array:
        present = [subset for subset in subsets if subset in self.by_subset]
        # A subset weighs as many items as it has, also where resampled means have a leading axis of draws.
        weights = np.array([self.counts[subset] for subset in present], float)
        stacked = np.stack([self.by_subset[subset] for subset in present])
        return np.asarray(np.tensordot(weights / weights.sum(), stacked, axes=1))

    def items(self, subsets: Iterable[str]) -> int:
        return sum(self.counts.get(subset, 0) for subset in subsets)

    def present(self, prefix: str) -> list[str]:
        return [subset for subset in self.by_subset if subset.startswith(prefix)]

    def subsets(self, leading: Iterable[str] = ()) -> list[str]:
        """The subsets that have graded items: those of `leading` in its order, then all others by name."""
        first = [subset for subset in leading if subset in self.by_subset]
        return [*first, *sorted(self.by_subset.keys() - {*first})]

    @property
    def named_subsets(self) -> list[str]:
        return [] if self.by_subset.keys() == {ALL} else self.subsets()  # its figure would be the headline once more

    def overall(self, name: str, cell: int, convention: str, chance: float | None = 0.5, is_share: bool = True) -> "Measure":
        value = np.asarray(self.pooled(self.by_subset)[..., cell])
        return Measure(name, value, self.items(self.by_subset), convention, chance, is_share)

    def each(
        self, subsets: Iterable[str], cell: int, convention: str, chance: float | None = 0.5, *, suffix: str = ""
    ) -> list["Measure"]:
        return [
            Measure(f"{subset}{suffix}", self.by_subset[subset][..., cell], self.count(subset, cell), convention, chance)
            for subset in subsets
        ]


class Measure(NamedTuple):
    """A figure of a benchmark: a value for each draw, over `n` items, by `convention`.

    `chance` is what a model without knowledge gets; None where there is no such number. `is_share`: the value is a share
    from 0 to 1, else a correlation from -1 to 1.
    """

    name: str
    value: Array
    n: int
    convention: str
    chance: float | None = 0.5
    is_share: bool = True


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by its authors' rules.

    `grade` turns items into graded items, in any order, each item once unless the benchmark joins several (RewardBench 2's
    ties). `measures` gives the headline first. `expected` has the number of items of each subset of the published file;
    `required` the subsets without which the measures don't exist. `fields` are those of the input rows that it reads; rows
    of one of `shapes` that have all of `needs` are its own, unless another benchmark needs more of them.
    """

    name: str
    title: str
    source: str
    shapes: tuple[str, ...]
    fields: tuple[str, ...]
    cells: tuple[str, ...]
    grade: Callable[[Iterable[Item]], Iterator[GradedItem]]
    measures: Callable[[MeanCells], list[Measure]]
    needs: tuple[str, ...] = ()
    expected: Mapping[str, int] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    splits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Items by subset of each file that its authors published, where there are several."""
    counts_games: bool = False
    """Whether grades count who won each order in which a judge saw two responses."""
    prefix: str = ""
    """Of Assay's columns where it scores the file itself: for rows that have a field of the same name as one of these."""

    def split_of(self, items: Mapping[str, int]) -> str | None:
        """The published split with as many items in each subset, `published` if there is only one; None if none has."""
        return next((name for name, counts in self._published.items() if not self._differing(items, counts)), None)

    def count_note(self, items: Mapping[str, int]) -> str | None:
        """A sentence on numbers of items that no published split has; None of rows without subsets, or if none is known."""
        if {*items} == {ALL} or not self._published or self.split_of(items) is not None:
            return None
        differing = {name: self._differing(items, counts) for name, counts in self._published.items()}
        splits = [f"{name} ({first_of(subsets, _MOST_LISTED)})" for name, subsets in differing.items()]
        return f"The numbers of items are those of no published file: {', '.join(splits)}."

    @property
    def _published(self) -> Mapping[str, Mapping[str, int]]:
        return self.splits or ({"published": self.expected} if self.expected else {})

    def _differing(self, items: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
        # Of Ties, 102 rows are published but its items are prompt ids: a required subset without a count may have any
        # number.
        subsets = sorted((items.keys() | counts.keys()) - ({*self.required} - counts.keys()))
        numbers = [(subset, items.get(subset, 0), counts.get(subset, 0)) for subset in subsets]
        return [f"{subset} {count} instead of {published}" for subset, count, published in numbers if count != published]


class Labelled(NamedTuple):
    """Two responses of which a label says which is right: by how much that one leads in each game, and by its reward."""

    games: tuple[float, ...]
    margin: float

    @property
    def tied(self) -> bool:
        return self.margin == 0 or 0 in self.games  # equal rewards are also those of one game won by each


def labelled(item: Item, right: str, wrong: str) -> Labelled:
    """The games of the right against the wrong response. Raises `Ungraded` without a reward, or a winner.

    A model that doesn't see responses together plays the same game in both orders, and is ahead by its rewards.
    """
    margin = reward(item, right) - reward(item, wrong)
    if item.games is None:
        return Labelled((margin, margin), margin)
    if not item.games:
        raise Ungraded("some votes can't be read, and the others don't tell who won each game")
    # Games are by the first response of the row, and these by the right one.
    sign = 1 if next(iter(item.rewards)) == right else -1
    return Labelled(tuple(sign * lead for lead in item.games), margin)


def subset_in(field_name: str) -> Callable[[Item], str]:
    """The subset of an item by a field of its row; `ALL` where rows don't have it."""
    return lambda item: str(item.fields.get(field_name) or ALL)


def grade_each(
    subset_of: Callable[[Item], str], grade_of: Callable[[Item], Grade]
) -> Callable[[Iterable[Item]], Iterator[GradedItem]]:
    """A benchmark whose items stand alone: `grade_of` grades an item, or raises `Ungraded`."""

    def grade(items: Iterable[Item]) -> Iterator[GradedItem]:
        for item in items:
            yield graded((item,), subset_of(item), item.rewards, functools.partial(grade_of, item))

    return grade


def graded(rows: tuple[Item, ...], subset: str, rewards: Mapping[str, float], grade: Callable[[], Grade]) -> GradedItem:
    """Rows as an item with the grade that `grade` gives, or with the reason why it raises `Ungraded`."""
    try:
        return GradedItem(rows, subset, rewards, *grade())
    except Ungraded as ungraded:
        return GradedItem(rows, subset, rewards, None, reason=str(ungraded))


def margins_between(right: Iterable[float], wrong: Sequence[float]) -> list[float]:
    """The margin of each right response's reward over each wrong one's.

    Row by row: all wrong ones for the first right one, and so on. RM-Bench's cells rely on this order.
    """
    return [better - worse for better in right for worse in wrong]


def grade_preference(lead: float, preference: float) -> Grade:
    """Of two responses, the second of which leads by `lead`: people preferred it by `preference`, below 0 the first.

    Its cell is 1 where the rewards prefer the same one, and NaN if people preferred neither. A tie is wrong.
    """
    if preference == 0:
        return Grade((math.nan,))
    # How strongly people preferred it doesn't count: the authors' accuracy is of the sign.
    margin = math.copysign(1, preference) * lead
    return Grade((float(margin > 0),), margin == 0, [margin])


def reward(item: Item, name: str) -> float:
    """The reward of a response. Raises `Ungraded` with the reason why it has none."""
    if name not in item.rewards:
        raise Ungraded(item.missing.get(name, f"there is no response {name}"))
    return item.rewards[name]


def number(item: Item, name: str) -> float:
    """The number in a field. Raises `Ungraded` if it holds none, or NaN, as tables have it where a label is missing."""
    value = item.fields.get(name)
    # A boolean passes as 0 or 1. NaN would make every comparison with it false, and thereby the item wrong.
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise Ungraded(f"the {name} {value!r} is no number")
    return float(value)


def integer(value: Any) -> int | None:
    """The integer that a label is, or None if it is none: tables have integers as floats where one of a column is missing.

    A label that isn't read is a reason for no grade and never a wrong answer.
    """
    # `True == 1`, so a boolean label would be read as the first response.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value != int(value):
        return None
    return int(value)


def rewards_of(item: Item, side: str) -> list[float]:
    """The rewards of `side`, or of `side[0]`, `side[1]`, ... Raises `Ungraded` if one is missing, or if there is none."""
    if side in item.names:
        return [reward(item, side)]
    listed = [name for position in range(len(item.names)) if (name := f"{side}[{position}]") in item.names]
    if not listed:
        raise Ungraded(f"there is no response {side}")
    return [reward(item, name) for name in listed]


def ranked_rewards(item: Item) -> list[float]:
    """The rewards of ranked responses, that of `rank[0]` first; empty if it has none.

    Raises `Ungraded` if it ranks a single one, or one has no reward.
    """
    # By number: as text rank[10] comes before rank[2].
    ranked = sorted((int(name[5:-1]), name) for name in item.names if name.startswith("rank["))
    if len(ranked) == 1:
        raise Ungraded("the row doesn't rank two responses or more")
    return [reward(item, name) for _, name in ranked]


def only_reward_of(item: Item, side: str) -> float:
    """The reward of the only response of `side`. Raises `Ungraded` if it is missing, or if there are several."""
    rewards = rewards_of(item, side)
    if len(rewards) > 1:
        raise Ungraded(f"{len(rewards)} {side} responses, and the benchmark has one")
    return rewards[0]


def mean(values: Sequence[Array]) -> Array:
    """The unweighted mean of several measures.

    All have one shape: () for the value, (draws,) where items are resampled.
    """
    return np.asarray(np.mean(np.stack(values), axis=0))


def mean_of_all(
    name: str, values: Mapping[str, Array], parts: Iterable[str], n: int, convention: str, *, chance: float | None = 0.5
) -> list[Measure]:
    """The mean of all `parts`; nothing without one of them, as a mean of fewer is another number under the same name."""
    names = list(parts)
    if not values.keys() >= {*names}:
        return []
    return [Measure(name, mean([values[part] for part in names]), n, convention, chance)]
