"""Which candidates make pairs, whatever they are, and by hand."""

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.folders.scored_corpus.candidates import SAME_REWARD, Candidate, PreferencePair
from pipelines.results.exports.pair_candidates import pairs
from pipelines.settings.export_settings import PairingSettings, PairsOf
from tests.support.candidates import candidate, candidates, with_content

TOLD = st.tuples(
    st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6),
    st.text("ab", max_size=3).map(" {} ".format) | st.text("ab", max_size=3),
)
SETTINGS = st.builds(
    PairingSettings,
    pairs=st.sampled_from(PairsOf),
    min_margin=st.sampled_from([0.0, 0.5, 2.0]),
    length_balanced=st.booleans(),
    pair_seed=st.integers(0, 3),
)


def made(own: Sequence[Candidate], **asked: Any) -> list[tuple[int, int]]:
    """The places of the better and the worse one of each pair."""
    return [(_place(pair.chosen), _place(pair.rejected)) for pair in pairs(own, PairingSettings(**asked))]


def _place(one: Candidate) -> int:
    return int(one.name.removeprefix("candidate[").removesuffix("]"))


def told(*own: tuple[float, str]) -> list[Candidate]:
    return [candidate(reward, text, name=f"candidate[{index}]") for index, (reward, text) in enumerate(own)]


def allowed(own: Sequence[Candidate], settings: PairingSettings) -> list[PreferencePair]:
    """Every couple that may be a pair, by the definition."""
    return [
        PreferencePair(item, other)
        for item, other in itertools.permutations(own, 2)
        if item.reward - other.reward > SAME_REWARD
        and item.reward - other.reward >= settings.min_margin
        and item.text.strip() != other.text.strip()
    ]


def sides(found: Sequence[PreferencePair]) -> list[tuple[float, float]]:
    return sorted((pair.chosen.reward, pair.rejected.reward) for pair in found)


# --- whatever they are -----------------------------------------------------------------------------------------------


@given(st.lists(TOLD, max_size=7), SETTINGS)
def test_a_pair_differs_in_reward_and_in_text(own: list[tuple[float, str]], settings: PairingSettings) -> None:
    for pair in pairs(told(*own), settings):
        assert pair.chosen.text.strip() != pair.rejected.text.strip()
        assert pair.margin == pair.chosen.reward - pair.rejected.reward > SAME_REWARD
        assert pair.margin >= settings.min_margin


@given(st.lists(TOLD, max_size=7), SETTINGS)
def test_all_are_every_couple_that_is_allowed(own: list[tuple[float, str]], settings: PairingSettings) -> None:
    every = settings.model_copy(update={"pairs": PairsOf.ALL})
    assert sides(pairs(told(*own), every)) == sides(allowed(told(*own), every))


@given(st.lists(TOLD, max_size=7), SETTINGS)
def test_whatever_is_asked_for_gives_pairs_that_all_gives_too(
    own: list[tuple[float, str]], settings: PairingSettings
) -> None:
    """None of them twice."""
    result = [(pair.chosen.name, pair.rejected.name) for pair in pairs(told(*own), settings)]
    every = pairs(told(*own), settings.model_copy(update={"pairs": PairsOf.ALL}))
    assert set(result) <= {(pair.chosen.name, pair.rejected.name) for pair in every}
    assert len(set(result)) == len(result)


@given(st.lists(TOLD, max_size=7), st.sampled_from([0.0, 0.5, 2.0]))
def test_the_best_and_the_worst_have_the_largest_margin(own: list[tuple[float, str]], min_margin: float) -> None:
    """Of all couples, or where texts are equal of those with the best."""
    settings = PairingSettings(pairs=PairsOf.BEST_WORST, min_margin=min_margin)
    everyone = told(*own)
    actual_pairs = pairs(everyone, settings)
    of_all = allowed(everyone, settings)
    best = max(everyone, key=lambda one: one.reward, default=None)
    with_best = [pair.margin for pair in of_all if pair.chosen is best]
    assert [pair.margin for pair in actual_pairs] == ([max(with_best)] if with_best else [])
    if len({item.text.strip() for item in everyone}) == len(everyone):
        assert [pair.margin for pair in actual_pairs] == ([max(pair.margin for pair in of_all)] if of_all else [])


@given(st.lists(TOLD, max_size=7), st.sampled_from([0.0, 0.5, 2.0]))
def test_a_chain_descends(own: list[tuple[float, str]], min_margin: float) -> None:
    chain = pairs(told(*own), PairingSettings(pairs=PairsOf.CONSECUTIVE, min_margin=min_margin))
    assert all(item.rejected is other.chosen for item, other in itertools.pairwise(chain))
    if chain:
        assert chain[0].chosen.reward == max(reward for reward, _ in own)


@given(st.lists(TOLD, min_size=1, max_size=7), st.integers(0, 9))
def test_a_random_one_is_any_that_is_worse_and_always_the_same(own: list[tuple[float, str]], seed: int) -> None:
    settings = PairingSettings(pairs=PairsOf.BEST_RANDOM, pair_seed=seed)
    responses = told(*own)
    actual_pairs, again = pairs(responses, settings), pairs(responses, settings)
    assert actual_pairs == again
    best = max(responses, key=lambda one: one.reward)
    assert len(actual_pairs) == any(pair.chosen.name == best.name for pair in allowed(responses, settings))
    assert all(pair.chosen == best for pair in actual_pairs)


@given(st.lists(TOLD, max_size=7), st.sampled_from([PairsOf.BEST_WORST, PairsOf.BEST_RANDOM]), st.sampled_from([0.0, 1.0]))
def test_the_nearest_in_length_of_those_that_differ_enough(
    own: list[tuple[float, str]], kind: PairsOf, min_margin: float
) -> None:
    settings = PairingSettings(pairs=kind, min_margin=min_margin, length_balanced=True)
    best = max(told(*own), key=lambda one: one.reward, default=None)
    apart = [_apart(pair) for pair in allowed(told(*own), settings) if best and pair.chosen.name == best.name]
    assert [_apart(pair) for pair in pairs(told(*own), settings)] == ([min(apart)] if apart else [])


def _apart(pair: PreferencePair) -> int:
    return abs(len(pair.chosen.text) - len(pair.rejected.text))


@given(st.lists(TOLD, max_size=6, unique_by=lambda one: one[0]), SETTINGS, st.integers(0, 99))
def test_the_order_of_different_rewards_is_no_matter(
    own: list[tuple[float, str]], settings: PairingSettings, order: int
) -> None:
    everyone = told(*own)
    shuffled = Random(order).sample(everyone, len(everyone))
    assert pairs(shuffled, settings) == pairs(everyone, settings)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_each_kind_of_four() -> None:
    item = candidates(2.0, 5.0, 1.0, 4.0)
    assert made(item) == [(1, 2)]
    assert made(item, pairs="consecutive") == [(1, 3), (3, 0), (0, 2)]
    assert made(item, pairs="all") == [(1, 3), (1, 0), (1, 2), (3, 0), (3, 2), (0, 2)]
    assert made(item, pairs="all", min_margin=3.0) == [(1, 0), (1, 2), (3, 2)]
    assert made(item, pairs="consecutive", min_margin=2.0) == [(1, 0)], "3 is too near to 1, and 2 to 0"
    assert made(item, min_margin=4.5) == []


@pytest.mark.parametrize("kind", PairsOf)
def test_nobody_one_or_equals_make_no_pair(kind: PairsOf) -> None:
    for item in ([], candidates(1.0), candidates(1.0, 1.0, 1.0), candidates(0.0, -0.0)):
        assert made(item, pairs=kind) == []
    assert made(told((2.0, "same"), (1.0, " same\n")), pairs=kind) == []


@pytest.mark.parametrize("kind", PairsOf)
def test_rewards_that_differ_by_the_last_bits_of_a_batch_make_no_pair(kind: PairsOf) -> None:
    assert made(candidates(*(2.5 + index * 1e-7 for index in range(4))), pairs=kind) == []
    assert made(candidates(2.5, 2.5 + 1e-4), pairs=kind) == [(1, 0)]


@pytest.mark.parametrize("kind", PairsOf)
def test_equal_answers_after_different_reasoning_make_no_pair(kind: PairsOf) -> None:
    """Where the reasoning was stripped: a judge that is sampled gives them other rewards by chance."""
    candidates = [
        with_content(candidate(float(index), f"<think>way {index}</think>\n\n7", name=f"candidate[{index}]"), answer="7")
        for index in range(4)
    ]
    assert made(candidates, pairs=kind) == []
    other = with_content(candidate(-1.0, "9", name="candidate[4]"), answer="9")
    assert made([*candidates, other], pairs=kind) == (
        [(index, 4) for index in (3, 2, 1, 0)] if kind is PairsOf.ALL else [(3, 4)]
    )


def test_only_the_sides_of_the_pair_are_read() -> None:
    """Reading is parsing the row: of eight responses to a prompt six needn't be."""
    read = list[str]()

    def noting(candidate: Candidate) -> Candidate:
        return candidate._replace(read=lambda: read.append(candidate.name) or candidate.read())  # type: ignore[func-returns-value]

    assert made([noting(each) for each in candidates(*range(8))]) == [(7, 0)]
    assert set(read) == {"candidate[7]", "candidate[0]"}


def test_a_margin_of_just_as_much_is_enough() -> None:
    assert made(candidates(2.0, 1.5), min_margin=0.5) == [(0, 1)]
    assert made(candidates(2.0, 1.75), min_margin=0.5) == []


def test_of_equals_the_first_is_the_best_and_the_last_the_worst() -> None:
    assert made(candidates(1.0, 3.0, 3.0, 1.0)) == [(1, 3)]
    assert made(candidates(1.0, 3.0, 3.0, 2.0, 1.0), pairs="consecutive") == [(1, 3), (3, 0)]


def test_the_worst_that_says_the_same_as_the_best_is_passed_over() -> None:
    assert made(told((3.0, "same"), (2.0, "other"), (1.0, "same"))) == [(0, 1)]


def test_balanced_lengths_win_over_a_larger_margin_and_lose_against_too_small_a_one() -> None:
    candidates = told((5.0, "x" * 10), (4.0, "y" * 10), (2.0, "y" * 14), (1.0, "y" * 30))
    assert made(candidates, length_balanced=True) == [(0, 1)]
    assert made(candidates, length_balanced=True, min_margin=2.0) == [(0, 2)]
    assert made(candidates, length_balanced=True, min_margin=3.5) == [(0, 3)]
    assert made(told((5.0, "xx"), (2.0, "x"), (1.0, "xxx")), length_balanced=True) == [(0, 2)], "of the same, the worst"


def test_random_ones_differ_by_prompt_and_seed_and_all_come_up() -> None:
    def drawn(seed: int) -> list[int]:
        candidates = [
            [
                candidate(-float(index), f"text {index}", prompt=f"p{prompt}", name=f"candidate[{index}]")
                for index in range(4)
            ]
            for prompt in range(60)
        ]
        return [made(candidate, pairs="best-random", pair_seed=seed)[0][1] for candidate in candidates]

    assert drawn(0) == drawn(0) != drawn(1)
    assert set(drawn(0)) == {1, 2, 3}


@pytest.mark.parametrize("min_margin", [0.0, 1.2 * SAME_REWARD, 1.0])
def test_all_pairs_are_those_of_all_combinations(min_margin: float) -> None:
    generator = Random(7)
    rewards = [generator.choice([0.0, 1.0]) + generator.randrange(5) * 0.6 * SAME_REWARD for _ in range(40)]
    responses = [candidate(reward, f"text {index % 9}", name=f"candidate[{index}]") for index, reward in enumerate(rewards)]
    couples = itertools.combinations(sorted(responses, key=lambda response: -response.reward), 2)
    expected = [
        (better.name, worse.name)
        for better, worse in couples
        if (margin := better.reward - worse.reward) > SAME_REWARD and margin >= min_margin and better.text != worse.text
    ]
    actual_pairs = pairs(responses, PairingSettings(pairs=PairsOf.ALL, min_margin=min_margin))
    assert [(pair.chosen.name, pair.rejected.name) for pair in actual_pairs] == expected != []
