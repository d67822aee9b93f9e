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
# Sums that are kept apart. Votes on a scale of whole numbers have a few hundred; those that are means of probabilities may
# have 2**votes, and a curve without some of its points is better than an evaluation that doesn't end.
_MOST_SUMS = 50_000
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
        # Of an odd number one more in the row's order; the swapped ones come after these.
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
    recorded, family = identity.get("judge"), families().get(str(identity.get("family")))
    if recorded is None or not isinstance(family, Judge):
        return None
    asks = JudgeSettings.model_validate({"rubric": recorded["rubric"]})
    return family.reading_by(ReadSettings.model_validate(identity["read"])).with_settings(asks)


class Votes:
    """Collects the votes of items.

    Memory doesn't grow with the items: sums of shares from 0 to 1, one for each number of votes and kind of agreement.
    """

    def __init__(self, rules: VoteRules, benchmark: Benchmark) -> None:
        self._rules = rules
        self._benchmark = benchmark
        self._left_out = 0
        self._sums: dict[str, float] = defaultdict(float)
        self._items: Counter[str] = Counter()

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            self._add(item)
            yield item

    def _add(self, item: Item) -> None:
        # The curve is the chance that one response is ahead of the other: items with more of them have none.
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
        # Asked of the benchmark itself, by grading the item as if the first response were ahead: labels are read in one
        # place.
        first, second = item.rewards
        with_first_ahead = replace(item, rewards={first: 1.0, second: 0.0}, games=None)
        margins = [margin for graded in self._benchmark.grade([with_first_ahead]) for margin in graded.margins]
        return margins[0] > 0 if margins else None

    def report(self) -> VoteReport | None:
        """Vote statistics; None if no item had all its votes read.

        Items that lack a vote are left out of all shares, so that every point of the curve is of the same items.
        """
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
    # Order doesn't matter, so equal ballots meet in the cache.
    return _drawn_sums(tuple(sorted(Counter(votes).items())), count)


@functools.lru_cache(maxsize=4096)
def _drawn_sums(votes: tuple[tuple[int, int], ...], count: int) -> Sums:
    """By value and multiplicity: of `times` equal votes, `picks` can be drawn in binomial(times, taken) ways."""
    # The generating function of the sums, one distinct value at a time: 32 votes of five grades are 5 steps, not 2**32
    # draws.
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
    # Binomial coefficients of 128 votes have 37 digits. As floats they lose all but 16, in sums of positive terms alone.
    values, ways = np.array(sorted(second.items()), float).T
    sums, times = np.array(sorted(first.items()), float).T
    below = np.append(0.0, ways.cumsum())  # below[i]: the ways of all values before the i-th
    less, up_to = (np.searchsorted(values * second_weight, sums * first_weight, side) for side in ("left", "right"))
    # The ways that are less, and those that are less or equal: twice what is won, with a half for each equal one.
    return float(times @ (below[less] + below[up_to]) / (2 * times.sum() * below[-1]))


def _shares(
    rules: VoteRules, first: Sequence[int], second: Sequence[int], first_is_right: bool
) -> Iterator[tuple[str, float]]:
    for count in counted(rules.votes):
        try:
            chance = _first_wins(rules, first, second, count)
        # That number of votes lacks this item, and `items` of its share says so; the largest, all votes, has one sum.
        except OverflowError:
            continue
        yield _curve_name(count), chance if first_is_right else 1 - chance
    if rules.shows is Shows.ONE:
        if rules.votes > 1:
            yield "two votes rank alike", _alone_agree(first, second)
        return
    # By who wins in each vote and not by how far: agreement is of verdicts.
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
    # In swapped votes the second response is shown first, and a lead is the first's: its share is turned round.
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
    # The lead of the first order plus that of the second: won if the one is greater than the other's negative.
    negated = {-total: ways for total, ways in drawn_sums(swapped, second_count).items()}
    return win_chance(drawn_sums(in_order, first_count), negated, second_count, first_count)


def _share_of_wins(leads: Sequence[int]) -> float:
    return sum((lead > 0) + 0.5 * (lead == 0) for lead in leads) / len(leads)


def _same_order(leads: Sequence[int]) -> float:
    equal_pairs = sum(times * (times - 1) for times in Counter(leads).values())  # ordered pairs, without a vote and itself
    return equal_pairs / (len(leads) * (len(leads) - 1))


def _alone_agree(first: Sequence[int], second: Sequence[int]) -> float:
    # Verdict (i, j) compares vote i on the first response with vote j on the second. Two verdicts are independent only if
    # they share no vote: n**2 * (n - 1)**2 ordered pairs.
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
