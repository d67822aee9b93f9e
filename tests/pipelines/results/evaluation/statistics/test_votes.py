"""Fewer votes are drawn exactly as drawing them would, and a preference for a place is seen as one."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from actors.contracts.showings import Shows
from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.statistics.votes import (
    VoteReport,
    VoteRules,
    Votes,
    counted,
    drawn_sums,
    judge_rules,
    vote_rules,
    win_chance,
)
from tests.support.evaluation import item

Ballots = tuple[Sequence[float], Sequence[float]]


def voted(chosen: Sequence[float], rejected: Sequence[float]) -> Item:
    rewards = {"chosen": sum(chosen) / len(chosen), "rejected": sum(rejected) / len(rejected)}
    return replace(item(rewards), votes={"chosen": chosen, "rejected": rejected})


def report(rules: VoteRules, *items: Item, benchmark: str = "pairs") -> VoteReport | None:
    votes = Votes(rules, benchmarks()[benchmark])
    assert list(votes.watch(items)) == list(items), "the items go on as they are"
    return votes.report()


def shares(rules: VoteRules, *items: Item, benchmark: str = "pairs") -> dict[str, float]:
    result = report(rules, *items, benchmark=benchmark)
    assert result is not None
    return {share.name: share.value for share in (*result.curve, *result.agreement)}


def win(ahead: float, behind: float) -> float:
    return (ahead > behind) + 0.5 * (ahead == behind)


def test_sums_are_those_of_all_subsets() -> None:
    votes = [3, 1, 4, 1, 5, 9]
    for count in range(1, 7):
        every = [sum(drawn) for drawn in itertools.combinations(votes, count)]
        assert drawn_sums(votes, count) == {total: every.count(total) for total in every}
    assert sum(drawn_sums([0, 1] * 64, 64).values()) == math.comb(128, 64), "whole numbers, however large"
    with pytest.raises(OverflowError):
        drawn_sums([2**index for index in range(40)], 20)


def test_a_tie_is_half_a_win() -> None:
    assert win_chance({0: 1, 2: 1}, {0: 1, 1: 1}) == 0.5 * 0.25 + 0.5
    assert win_chance({2: 1}, {3: 1}, 3, 2) == 0.5, "2 of 2 votes are as much as 3 of 3"


def test_the_curve_of_a_judge_of_single_responses_is_that_of_drawing() -> None:
    chosen, rejected = [4.0, 2.0, 5.0, 3.0, 3.0], [3.0, 3.0, 2.0, 4.0, 1.0]
    values = shares(VoteRules(Shows.ONE, 5, False), voted(chosen, rejected))
    for count in (1, 2, 4, 5):
        subsets = itertools.product(itertools.combinations(chosen, count), itertools.combinations(rejected, count))
        exact = [win(sum(ahead), sum(behind)) for ahead, behind in subsets]
        name = f"accuracy of {count} vote{'s' if count > 1 else ''}"
        assert values[name] == pytest.approx(sum(exact) / len(exact))
    verdicts = {(a, b): np.sign(chosen[a] - rejected[b]) for a in range(5) for b in range(5)}
    alike = [verdicts[a, b] == verdicts[c, d] for (a, b) in verdicts for (c, d) in verdicts if a != c and b != d]
    assert values["two votes rank alike"] == pytest.approx(sum(alike) / len(alike))


def test_the_curve_of_a_judge_of_pairs_draws_from_both_orders() -> None:
    # Five votes on a pair: three in the row's order, then two in the other.
    chosen, rejected = [1.0, 1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0]
    values = shares(VoteRules(Shows.TWO, 5, False), voted(chosen, rejected))
    assert values["accuracy of 1 vote"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    pairs = [win(ahead + turned, 0) for ahead in (1, 1, -1) for turned in (1, -1)]
    assert values["accuracy of 2 votes"] == pytest.approx(sum(pairs) / 6)
    assert values["accuracy of 5 votes"] == 1.0, "a third for the first order's mean, nothing for the other's"
    assert values["right response shown first: its share of votes"] == pytest.approx(2 / 3)
    assert values["right response shown second: its share of votes"] == pytest.approx(1 / 2)
    assert values["votes for the response shown first"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert values["both orders rank alike"] == pytest.approx(3 / 6)
    assert values["two votes in one order rank alike"] == pytest.approx(1 / 3)


def test_orders_with_unequal_numbers_of_votes_count_alike() -> None:
    # A lead of 1 in three votes, and of -1 in two: 1/3 is less than 1/2, so that the first response has lost.
    values = shares(VoteRules(Shows.TWO, 5, False), voted([1.0, 1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.5, 1.0]))
    assert values["accuracy of 5 votes"] == 0.0


def test_a_judge_that_prefers_the_first_place_is_seen() -> None:
    rules = VoteRules(Shows.TWO, 4, False)
    first_place = shares(rules, voted([1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]))
    fair = shares(rules, voted([1.0] * 4, [0.0] * 4))
    expected = {
        "votes for the response shown first": (1.0, 0.5),
        "both orders rank alike": (0.0, 1.0),
        "right response shown first: its share of votes": (1.0, 1.0),
        "right response shown second: its share of votes": (0.0, 1.0),
        "accuracy of 4 votes": (0.5, 1.0),
    }
    assert {name: (first_place[name], fair[name]) for name in expected} == expected


def test_which_response_is_right_is_the_benchmarks_to_say_also_of_a_tie() -> None:
    tied = replace(item({"A": 0.5, "B": 0.5}, label="B>A", source="mmlu-pro"), votes={"A": (1.0, 0.0), "B": (0.0, 1.0)})
    values = shares(VoteRules(Shows.TWO, 2, False), tied, benchmark="judgebench")
    assert values["right response shown first: its share of votes"] == 1.0, "B, shown first in the swapped order"
    assert values["right response shown second: its share of votes"] == 0.0


def test_items_with_unreadable_votes_are_left_out_of_every_number() -> None:
    rules = VoteRules(Shows.ONE, 2, False)
    result = report(rules, voted([2.0, 1.0], [0.0, 0.0]), voted([0.0], [1.0, 1.0]), item({"chosen": 1.0, "rejected": None}))
    assert result is not None
    assert (result.items, result.left_out) == (1, 1)
    assert {share.n for share in result.curve} == {1}
    assert report(rules, voted([0.0], [1.0, 1.0])) is None


def test_the_curve_counts_in_powers_of_two_up_to_all() -> None:
    assert (counted(1), counted(2), counted(5), counted(8)) == ([1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8])


def test_rules_are_those_of_the_run() -> None:
    judge = {"votes": 4, "aggregate": "win-rate", "rubric": None}
    assert vote_rules({"family": "rm-r1", "judge": judge, "read": {}}) == VoteRules(Shows.TWO, 4, True, 1)
    pointwise = {
        "family": "r3",
        "read": {"rating": "pointwise", "principles": {"short": "brevity"}},
        "judge": judge | {"aggregate": "mean"},
    }
    assert vote_rules(pointwise) == VoteRules(Shows.ONE, 4, False, 1)
    assert vote_rules({"family": "scalar"}) is None
    assert vote_rules({"family": "reward-anything", "judge": judge, "read": {}}) is None, (
        "principles of the rows share its votes"
    )
    principles = {"principles": {"short": "brevity"}}
    listing: dict[str, Any] = {"family": "reward-anything", "judge": judge, "read": principles}
    assert vote_rules(listing) == VoteRules(Shows.ALL, 4, True, 1)
    greedy = {**listing, "judge": {**judge, "temperature": 0.0}}
    assert vote_rules(greedy) == VoteRules(Shows.ALL, 2, True, 1), "a greedy judge is asked once in each order"
    several = {**listing, "read": {"principles": {"right": "correctness", "short": "brevity"}}}
    assert judge_rules(several) == VoteRules(Shows.ALL, 4, True, 2)
    assert judge_rules({"family": "reward-anything", "judge": judge, "read": {}}) == VoteRules(Shows.ALL, 4, True, None)
