"""What a judge's votes say of the judge: accuracy with fewer votes, agreement of votes, and preference for a place.

All of it is of items with two responses, and of one run with V votes. Accuracy by k votes is the mean over all ways to draw
k of them without replacement, counted exactly (the hypergeometric expectation): no votes are bought twice. Votes on a pair
are drawn from both orders alike. Only items of which all votes could be read count, the same ones for every k.
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from actors.contracts.judge import Judge
from actors.contracts.showings import Shows
from actors.reward_model import families
from actors.settings.replica import JudgeSettings, ReadSettings
from actors.text.counted import number_of
from pipelines.results.evaluation.benchmark import Benchmark, Item
from pipelines.results.evaluation.statistics.intervals import wilson

_GRID = 10**6  # votes that are nearer to each other than a millionth are equal
_MOST_SUMS = 50_000
"""Different sums of drawn votes that are kept apart. Votes on a scale of whole numbers have a few hundred."""
Sums = Mapping[int, int]


class VoteRules(NamedTuple):
    """How a run's judge voted: what its prompts show, and how many votes each question has, both orders together.

    `counts_wins`: a vote counts by who wins in it, not by how far (win rates, Bradley-Terry). `principles`: on how many each
    item is judged, with as many votes for each; None if they are those of the rows, which may have any number.
    """

    shows: Shows
    votes: int
    counts_wins: bool
    principles: int | None = None

    @property
    def in_order(self) -> int:
        """Votes on a pair in the order of the row; those in swapped order come after them."""
        return self.votes - self.votes // 2


@dataclass(frozen=True)
class VoteShare:
    """A share over `n` items and its 95 % interval (Wilson; of values between 0 and 1 it is wide enough)."""

    name: str
    value: float
    low: float
    high: float
    n: int
    votes: int | None = None
    """Of the curve, the number of votes that it is the accuracy of."""


@dataclass(frozen=True)
class VoteReport:
    """Accuracy by number of votes (a tie counts half), and how votes agree. `left_out`: items with fewer readable votes."""

    votes: int
    items: int
    left_out: int
    curve: tuple[VoteShare, ...]
    agreement: tuple[VoteShare, ...]
    method: str = (
        "k of the votes drawn without replacement, expected value in closed form (hypergeometric), both orders of a pair "
        "alike; a tie counts half; intervals: Wilson, by items"
    )


def vote_rules(identity: Mapping[str, Any]) -> VoteRules | None:
    """How the judge of a run voted, by its identity; None of a reward head, or where several principles share the votes."""
    judge = _judge(identity)
    if (
        judge is None
        or len((identity.get("read") or {}).get("principles") or ()) > 1
        or "principle" in identity.get("fields", {})
    ):
        return None
    # Principles of the rows have votes of their own each.
    return None if judge.needs_principles else judge_rules(identity)


def judge_rules(identity: Mapping[str, Any]) -> VoteRules | None:
    """The same where several principles share the votes, too: each has `votes` of its own."""
    judge, recorded = _judge(identity), identity.get("judge")
    if judge is None or recorded is None:
        return None
    votes, principles = recorded["votes"], len(judge.way.principles or ()) or (None if judge.takes_principles else 1)
    if judge.shows is Shows.ALL and recorded.get("temperature") == 0:
        votes = min(votes, 2)  # it is asked once in each order, and two responses have two
    return VoteRules(judge.shows, votes, recorded["aggregate"] != "mean", principles)


def _judge(identity: Mapping[str, Any]) -> Judge | None:
    """The judge of a run, as it is asked; None of a reward head."""
    recorded, family = identity.get("judge"), families().get(str(identity.get("family")))
    if recorded is None or not isinstance(family, Judge):
        return None
    asks = JudgeSettings.model_validate({"rubric": recorded["rubric"]})
    return family.reading_by(ReadSettings.model_validate(identity["read"])).with_settings(asks)


class Votes:
    """Collects the votes of items: a few sums for each."""

    def __init__(self, rules: VoteRules, benchmark: Benchmark) -> None:
        self._rules = rules
        self._benchmark = benchmark
        self._left_out = 0
        self._sums: dict[str, float] = defaultdict(float)
        self._items: Counter[str] = Counter()

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items as they are, each taken in on its way."""
        for item in items:
            self._add(item)
            yield item

    def _add(self, item: Item) -> None:
        if len(item.rewards) != 2 or item.missing or (first_is_right := self._first_is_right(item)) is None:
            return
        first, second = (_on_grid(item.votes.get(name, ())) for name in item.rewards)
        if not len(first) == len(second) == self._rules.votes:
            self._left_out += 1
            return
        for name, value in _shares(self._rules, first, second, first_is_right):
            self._sums[name] += value
            self._items[name] += 1

    def _first_is_right(self, item: Item) -> bool | None:
        """Whether the first response is the right one by the benchmark; None if it grades no right against a wrong one."""
        first, second = item.rewards
        with_first_ahead = replace(item, rewards={first: 1.0, second: 0.0}, games=None)
        margins = [margin for graded in self._benchmark.grade([with_first_ahead]) for margin in graded.margins]
        return margins[0] > 0 if margins else None

    def report(self) -> VoteReport | None:
        """What the votes come to; None without an item all of whose votes could be read."""
        if not self._items:
            return None
        votes = {_curve_name(count): count for count in counted(self._rules.votes)}
        shares = []
        for name, items in self._items.items():
            value = min(1.0, self._sums[name] / items)
            shares.append(VoteShare(name, value, *wilson(value, items), items, votes.get(name)))
        curve = tuple(share for share in shares if share.votes is not None)
        agreement = tuple(share for share in shares if share.votes is None)
        return VoteReport(self._rules.votes, max(self._items.values()), self._left_out, curve, agreement)


def _curve_name(count: int) -> str:
    return f"accuracy of {number_of(count, 'vote')}"


def counted(most: int) -> list[int]:
    """The numbers of votes of the curve: 1, 2, 4 and so on, and all of them."""
    powers = [2**exponent for exponent in range(most.bit_length()) if 2**exponent < most]
    return [*powers, most]


def drawn_sums(votes: Sequence[int], count: int) -> Sums:
    """How many of the ways to draw `count` votes have each sum. Raises `OverflowError` if there are too many sums."""
    return _drawn_sums(tuple(sorted(Counter(votes).items())), count)


@functools.lru_cache(maxsize=4096)
def _drawn_sums(votes: tuple[tuple[int, int], ...], count: int) -> Sums:
    """By value and multiplicity: of `times` equal votes, `picks` can be drawn in binomial(times, taken) ways."""
    sums: Counter[tuple[int, int]] = Counter({(0, 0): 1})  # (votes drawn, their sum) -> ways
    for value, times in votes:
        longer: Counter[tuple[int, int]] = Counter()
        for (drawn, total), ways in sums.items():
            for picks in range(min(times, count - drawn) + 1):
                longer[drawn + picks, total + picks * value] += ways * math.comb(times, picks)
        if len(longer) > _MOST_SUMS:
            raise OverflowError(f"more than {_MOST_SUMS} different sums")
        sums = longer
    return {total: ways for (drawn, total), ways in sums.items() if drawn == count}


def win_chance(first: Sums, second: Sums, first_weight: int = 1, second_weight: int = 1) -> float:
    """The chance that a sum of `first`, times its weight, is greater than one of `second`; half of it for equal ones."""
    values = np.array(sorted(second), float) * second_weight
    ways = np.array([second[value] for value in sorted(second)], object)
    below = np.concatenate([[0], np.cumsum(ways)])  # below[i]: the ways of all values before the i-th
    won = 0
    for value, times in first.items():
        less = int(np.searchsorted(values, value * first_weight, "left"))
        up_to = int(np.searchsorted(values, value * first_weight, "right"))
        # The ways that are less, and those that are less or equal: twice what is won, with a half for each equal one.
        won += times * (below[less] + below[up_to])
    # Exact integers up to here: binomial coefficients of 128 votes have 37 digits.
    return float(won / (2 * sum(first.values()) * below[-1]))


def _shares(
    rules: VoteRules, first: Sequence[int], second: Sequence[int], first_is_right: bool
) -> Iterator[tuple[str, float]]:
    """Each share of an item by its name, from 0 to 1."""
    for count in counted(rules.votes):
        try:
            chance = _first_wins(rules, first, second, count)
        except OverflowError:
            continue
        yield _curve_name(count), chance if first_is_right else 1 - chance
    if rules.shows is Shows.ONE:
        if rules.votes > 1:
            yield "two votes rank alike", _alone_agree(first, second)
        return
    leads = np.sign(np.subtract(first, second)).astype(int).tolist()
    if rules.shows is Shows.ALL or rules.votes == 1:
        if rules.votes > 1:
            yield "two votes rank alike", _same_order(leads)
        return
    in_order, swapped = leads[: rules.in_order], leads[rules.in_order :]
    # In the row's order the first response is shown first. If the second is right, it is the swapped votes that show the
    # right one first; and leads are of the first response, so its share of votes is turned round.
    for place, votes in (
        ("first", in_order if first_is_right else swapped),
        ("second", swapped if first_is_right else in_order),
    ):
        right = _share_of_wins(votes)
        yield f"right response shown {place}: its share of votes", right if first_is_right else 1 - right
    yield "votes for the response shown first", (_share_of_wins(in_order) + 1 - _share_of_wins(swapped)) / 2
    yield "both orders rank alike", sum(a == b for a in in_order for b in swapped) / (len(in_order) * len(swapped))
    if len(in_order) > 1:
        yield "two votes in one order rank alike", _same_order(in_order)


def _first_wins(rules: VoteRules, first: Sequence[int], second: Sequence[int], count: int) -> float:
    """The chance that the first response is ahead by `count` of the votes, half of it where it is level."""
    if rules.shows is Shows.ONE:
        return win_chance(drawn_sums(first, count), drawn_sums(second, count))
    leads = [vote - other for vote, other in zip(first, second, strict=True)]
    if rules.counts_wins:
        leads = [(lead > 0) - (lead < 0) for lead in leads]
    zero: Sums = {0: 1}
    if rules.shows is Shows.ALL:
        return win_chance(drawn_sums(leads, count), zero)
    in_order, swapped = leads[: rules.in_order], leads[rules.in_order :]
    if count == 1:  # a single vote is in one order: the mean of both, or the judge's preference for a place would count
        orders = [votes for votes in (in_order, swapped) if votes]
        return sum(win_chance(drawn_sums(votes, 1), zero) for votes in orders) / len(orders)
    first_count, second_count = count - count // 2, count // 2
    # Each order counts as the mean of its votes: sums of three and of two votes compare as 2 to 3.
    negated = {-total: ways for total, ways in drawn_sums(swapped, second_count).items()}
    return win_chance(drawn_sums(in_order, first_count), negated, second_count, first_count)


def _share_of_wins(leads: Sequence[int]) -> float:
    return sum((lead > 0) + 0.5 * (lead == 0) for lead in leads) / len(leads)


def _same_order(leads: Sequence[int]) -> float:
    """The share of pairs of votes with equal verdicts."""
    equal_pairs = sum(times * (times - 1) for times in Counter(leads).values())
    return equal_pairs / (len(leads) * (len(leads) - 1))


def _alone_agree(first: Sequence[int], second: Sequence[int]) -> float:
    """The share of pairs of verdicts, of four different votes, that rank the two responses alike."""
    verdicts = np.sign(np.subtract.outer(np.array(first), np.array(second)))
    equal_pairs = 0
    for sign in (-1, 0, 1):
        chosen = (verdicts == sign).astype(np.int64)
        # Ordered pairs, less those that share the first response's vote, or the second's; those that share both come back.
        equal_pairs += int(chosen.sum() ** 2 - (chosen.sum(1) ** 2).sum() - (chosen.sum(0) ** 2).sum() + chosen.sum())
    count = len(first)
    return equal_pairs / (count * (count - 1)) ** 2


def _on_grid(votes: Iterable[float]) -> list[int]:
    return [round(vote * _GRID) for vote in votes]
