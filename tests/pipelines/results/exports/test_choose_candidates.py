"""Which candidates of a prompt are kept, against hand computations and over many draws."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import SettingsError
from pipelines.folders.scored_corpus.candidates import SAME_REWARD, Candidate
from pipelines.results.exports.choose_candidates import check, choose, rank_candidates
from pipelines.settings.export_settings import ChoiceOfCandidates
from tests.support.candidates import candidate, candidates
from tests.support.examples import examples

REWARDS = st.lists(st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6), max_size=8)


def places(candidates: Sequence[Candidate], **settings: Any) -> list[int]:
    """The places of those that are kept."""
    kept = choose(candidates, ChoiceOfCandidates(**settings))
    return [int(ranked.candidate.name.removeprefix("candidate[").removesuffix("]")) for ranked in kept]


def test_the_best_in_the_order_of_their_rewards_and_of_equals_the_first() -> None:
    assert places(candidates(1.0, 3.0, 3.0), strategy="best") == [1]
    assert places(candidates(-0.0, 0.0), strategy="best") == [0]
    three = candidates(1.0, 3.0, 2.0)
    assert places(three, strategy="all", floor=2.0) == [1, 2]
    assert places(three, strategy="best", floor=3.5) == [], "the best one isn't good enough"
    assert places(three, strategy="softmax", k=3, floor=2.0) == [1, 2]
    five = candidates(1.0, 3.0, 2.0, 3.0, 1.0)
    assert places(five, strategy="top-k", k=2) == [1, 3]
    assert places(five, strategy="top-k", k=9) == [1, 3, 2, 0, 4]


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "best"},
        {"strategy": "top-k", "k": 3},
        {"strategy": "all", "floor": 0.0},
        {"strategy": "softmax", "k": 2},
        {"strategy": "majority", "voters": ("a",)},
    ],
)
def test_of_none_nothing_is_kept_and_of_one_that_one(settings: dict[str, Any]) -> None:
    assert choose([], ChoiceOfCandidates(**settings)) == []
    (ranked,) = choose([candidate(0.5, a=1.0)], ChoiceOfCandidates(**settings))
    assert (ranked.rank, ranked.z_score, ranked.of) == (1, None, 1)


@given(REWARDS, st.integers(1, 9))
def test_the_best_k_are_those_of_a_sort(rewards: list[float], k: int) -> None:
    kept = choose(candidates(*rewards), ChoiceOfCandidates(strategy="top-k", k=k))
    assert [item.candidate.reward for item in kept] == sorted(rewards, reverse=True)[:k]


# --- where a candidate stands ----------------------------------------------------------------------------------------


def test_ranks_and_z_scores_by_hand() -> None:
    ranked = rank_candidates(candidates(2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0))  # their mean is 5, their deviation 2
    assert [each.rank for each in ranked] == [8, 5, 5, 5, 3, 3, 2, 1]
    assert [each.z_score for each in ranked] == [-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0]
    assert {each.of for each in ranked} == {8}
    for rewards in ((1.0,), (0.1, 0.1, 0.1), (0.0, -0.0), (2.5, 2.5 + 1e-7, 2.5 - 1e-7)):
        assert {(each.rank, each.z_score) for each in rank_candidates(candidates(*rewards))} == {(1, None)}


class Counted(float):
    """A reward that counts how often rewards are compared."""

    comparisons = 0

    def __lt__(self, other: float) -> bool:
        Counted.comparisons += 1
        return float(self) < float(other)


def test_ranking_equal_candidates_takes_no_comparison_of_each_with_all() -> None:
    """With the largest and the smallest looked up for each, 100,000 equal candidates took four minutes."""
    rank_candidates(candidates(*[Counted(1.0)] * 2000))
    assert 0 < Counted.comparisons < 50 * 2000


def test_a_candidate_stands_among_all_and_not_among_those_that_are_kept() -> None:
    kept = choose(candidates(9.0, 1.0, 5.0, 5.0), ChoiceOfCandidates(strategy="all", floor=5.0))
    assert [(item.rank, item.of) for item in kept] == [(1, 4), (2, 4), (2, 4)]
    assert kept[0].as_row() == {
        "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "text 0"}],
        "reward": 9.0, "scores": {}, "rank": 1, "z_score": pytest.approx(4 / math.sqrt(8)), "of": 4,
        "prompt_hash": kept[0].candidate.prompt_hash, "row": "c:0", "response_name": "candidate[0]",
    }  # fmt: skip


# --- alike -----------------------------------------------------------------------------------------------------------


def worded(*responses: tuple[float, str]) -> list[Candidate]:
    return [candidate(reward, text, name=f"candidate[{index}]") for index, (reward, text) in enumerate(responses)]


def test_of_texts_that_are_nearly_alike_only_the_best_is_kept() -> None:
    # One character of ten replaced: 2 of 20 must be deleted or inserted, so they are 0.9 alike; of two replaced, 0.8.
    candidates = worded((1.0, "0123456789"), (3.0, "012345678x"), (2.0, "01234567xx"))
    assert places(candidates, strategy="all", distinct=0.9) == [1]
    assert places(candidates, strategy="all", distinct=0.95) == [1, 2, 0]
    candidates = worded((3.0, "0123456789"), (2.0, "012345678x"), (1.0, "01234567xx"))
    assert places(candidates, strategy="all", distinct=0.9) == [0, 2], "the last is like one that isn't kept itself"
    assert places(candidates, strategy="all", distinct=0.75) == [0]
    assert places(worded((1.0, "same"), (3.0, " same\n")), strategy="all", distinct=1.0) == [1]


def test_texts_that_are_just_as_alike_as_that_are_alike() -> None:
    alike = {same / 10: worded((1.0, "a" * 10), (0.0, "a" * same + "x" * (10 - same))) for same in range(1, 10)}
    assert {share: places(item, strategy="all", distinct=share) for share, item in alike.items()} == {
        share: [0] for share in alike
    }


@given(st.lists(st.tuples(st.integers(0, 3).map(float), st.text("ab", min_size=1, max_size=4)), max_size=8))
def test_no_two_that_are_kept_are_equal_and_each_text_has_its_best(scored_texts: list[tuple[float, str]]) -> None:
    kept = choose(worded(*scored_texts), ChoiceOfCandidates(strategy="all", distinct=1.0))
    rewards = {item.candidate.text: item.candidate.reward for item in kept}
    assert len(rewards) == len(kept)
    assert rewards == {text: max(reward for reward, same in scored_texts if same == text) for _, text in scored_texts}


# --- drawn -----------------------------------------------------------------------------------------------------------

FOUR = (0.0, 1.0, 2.0, 1.0)


def prompt(at: int) -> list[Candidate]:
    return [
        candidate(reward, f"text {place}", prompt=f"p{at}", name=f"candidate[{place}]") for place, reward in enumerate(FOUR)
    ]


def test_a_draw_is_of_its_seed_and_its_prompt() -> None:
    draws = [[places(prompt(index), strategy="softmax", k=2, choice_seed=seed) for index in range(50)] for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert len(set(map(tuple, draws[0]))) > 1, "prompts aren't drawn alike"
    alone = places(prompt(17), strategy="softmax", k=2)
    assert alone == draws[0][17], "other prompts are no matter"


@examples(50)
@given(REWARDS, st.integers(1, 9), st.floats(0.01, 100.0))
def test_a_draw_is_without_replacement_and_tells_the_better_ones_first(rewards: list[float], k: int, heat: float) -> None:
    kept = choose(candidates(*rewards), ChoiceOfCandidates(strategy="softmax", k=k, softmax_temperature=heat))
    assert len({item.candidate.name for item in kept}) == len(kept) == min(k, len(rewards))
    assert all(item.candidate.reward >= other.candidate.reward for item, other in itertools.pairwise(kept))


@pytest.mark.parametrize("heat", [0.7, 3.0])
def test_one_is_drawn_as_often_as_the_exponential_of_its_reward(heat: float) -> None:
    prompts = 2000
    drawn = Counter(places(prompt(index), strategy="softmax", softmax_temperature=heat)[0] for index in range(prompts))
    weights = [math.exp(reward / heat) for reward in FOUR]
    expected = [prompts * weight / sum(weights) for weight in weights]
    chi_squared = sum((drawn[index] - count) ** 2 / count for index, count in enumerate(expected))
    assert chi_squared < 16.27, "of three degrees of freedom, one in a thousand"


def test_two_are_drawn_one_after_the_other() -> None:
    """The probability of a set is that of either order, the second drawn among what the first left."""
    prompts, weights = 2000, [math.exp(reward) for reward in FOUR]
    drawn = Counter(frozenset(places(prompt(index), strategy="softmax", k=2)) for index in range(prompts))
    whole = sum(weights)
    chi_squared = 0.0
    for item, other in itertools.combinations(range(4), 2):
        first, second = weights[item], weights[other]
        expected = prompts * first * second / whole * (1 / (whole - first) + 1 / (whole - second))
        chi_squared += (drawn[frozenset({item, other})] - expected) ** 2 / expected
    assert chi_squared < 20.52, "of five degrees of freedom, one in a thousand"


# --- elected ---------------------------------------------------------------------------------------------------------


def test_the_one_that_most_judges_put_first() -> None:
    three = [
        each._replace(scores=scores)
        for each, scores in zip(
            candidates(9.0, 1.0, 5.0),
            ({"a": 1.0, "b": 0.0, "c": 5.0}, {"a": 2.0, "b": 0.5, "c": 4.0}, {"a": 2.0 + 1e-7, "b": 0.0}),
            strict=True,
        )
    ]
    assert places(three, strategy="majority", voters=("b", "b", "c")) == [1]
    assert places(three, strategy="majority", voters=("b", "c")) == [0], "one vote each: the higher reward"
    assert places(three, strategy="majority", voters=("a",)) == [2], (
        "of scores that are equal the one with the higher reward"
    )
    assert places(three[1:], strategy="majority", voters=("c",)) == [1], "who has no score gets no vote"


# --- what doesn't go together ----------------------------------------------------------------------------------------


def test_what_doesnt_go_together_is_told() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"strategy": "all"}, "--strategy all keeps everything: give --set floor=... or --set distinct=..., too"),
        ({"strategy": "majority"}, "--strategy majority and voters go together"),
        ({"strategy": "best", "voters": ("a",)}, "--strategy majority and voters go together: the names, in `scores`"),
        ({"strategy": "best", "k": 2}, "-k 2 goes with --strategy top-k and softmax, and not with best"),
        (
            {"strategy": "majority", "voters": ("a",), "k": 3},
            "-k 3 goes with --strategy top-k and softmax, and not with majority",
        ),
        ({"strategy": "all", "floor": 0.0, "k": 2}, "-k 2 goes with"),
    ]
    for request, says in cases:
        with pytest.raises(SettingsError, match=says):
            check(ChoiceOfCandidates(**request))


def test_ranks_are_those_of_a_count_over_all() -> None:
    """Close rewards share a rank without being equal, in chains that no grouping would give."""
    generator = Random(5)
    rewards = [generator.choice([0.0, 1.0, -3.5]) + generator.randrange(6) * 0.6 * SAME_REWARD for _ in range(300)]
    expected = [1 + sum(other - reward > SAME_REWARD for other in rewards) for reward in rewards]
    assert [ranked.rank for ranked in rank_candidates(candidates(*rewards))] == expected
    assert len(set(expected)) > 6
