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

RESPONSES = st.lists(
    st.tuples(
        st.integers(-3, 3).map(float)
        | st.floats(-1e6, 1e6)
        | st.integers(0, 5).map(lambda steps: steps * 0.6 * SAME_REWARD),
        st.text("ab", max_size=3).map(" {} ".format) | st.text("ab", max_size=3),
    ),
    max_size=7,
)
SETTINGS = st.builds(
    PairingSettings,
    pairs=st.sampled_from(PairsOf),
    min_margin=st.sampled_from([0.0, 0.5, 2.0]),
    length_balanced=st.booleans(),
    pair_seed=st.integers(0, 3),
)


def places(candidates: Sequence[Candidate], **settings: Any) -> list[tuple[int, int]]:
    """The places of the better and the worse one of each pair."""
    return [(_place(pair.chosen), _place(pair.rejected)) for pair in pairs(candidates, PairingSettings(**settings))]


def _place(candidate: Candidate) -> int:
    return int(candidate.name.removeprefix("candidate[").removesuffix("]"))


def worded(*responses: tuple[float, str]) -> list[Candidate]:
    return [candidate(reward, text, name=f"candidate[{index}]") for index, (reward, text) in enumerate(responses)]


def allowed(candidates: Sequence[Candidate], settings: PairingSettings) -> list[PreferencePair]:
    """Every couple that may be a pair, by the definition."""
    return [
        PreferencePair(better, worse)
        for better, worse in itertools.permutations(candidates, 2)
        if better.reward - worse.reward > SAME_REWARD
        and better.reward - worse.reward >= settings.min_margin
        and better.text.strip() != worse.text.strip()
    ]


def names(all_pairs: Sequence[PreferencePair]) -> list[tuple[str, str]]:
    return [(pair.chosen.name, pair.rejected.name) for pair in all_pairs]


# --- whatever they are -----------------------------------------------------------------------------------------------


@given(RESPONSES, SETTINGS)
def test_pairs_are_among_the_couples_that_are_allowed_and_none_twice(
    responses: list[tuple[float, str]], settings: PairingSettings
) -> None:
    candidates = worded(*responses)
    couples, all_pairs = names(allowed(candidates, settings)), names(pairs(candidates, settings))
    assert set(all_pairs) <= set(couples)
    assert len(set(all_pairs)) == len(all_pairs)
    every = settings.model_copy(update={"pairs": PairsOf.ALL})
    assert sorted(names(pairs(candidates, every))) == sorted(couples)


@given(RESPONSES, SETTINGS)
def test_one_partner_of_the_best_is_the_worst_the_nearest_in_length_or_any(
    responses: list[tuple[float, str]], settings: PairingSettings
) -> None:
    candidates = worded(*responses)
    best = max(candidates, key=lambda candidate: candidate.reward, default=None)
    couples = [pair for pair in allowed(candidates, settings) if pair.chosen is best]
    one_pair = pairs(candidates, settings)
    match settings.pairs:
        case PairsOf.ALL:
            return
        case PairsOf.CONSECUTIVE:
            assert all(pair.rejected is following.chosen for pair, following in itertools.pairwise(one_pair))
            assert all(pair.chosen is best for pair in one_pair[:1])
            return
    assert len(one_pair) == bool(couples)
    for pair in one_pair:
        assert pair.chosen is best
        if settings.length_balanced:
            assert _length_gap(pair) == min(map(_length_gap, couples))
        elif settings.pairs is PairsOf.BEST_WORST:
            assert pair.margin == max(couple.margin for couple in couples)


def _length_gap(pair: PreferencePair) -> int:
    return abs(len(pair.chosen.text) - len(pair.rejected.text))


@given(
    RESPONSES.filter(lambda responses: len({reward for reward, _ in responses}) == len(responses)), SETTINGS, st.integers()
)
def test_the_order_of_different_rewards_is_no_matter(
    responses: list[tuple[float, str]], settings: PairingSettings, order: int
) -> None:
    candidates = worded(*responses)
    assert pairs(Random(order).sample(candidates, len(candidates)), settings) == pairs(candidates, settings)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_each_kind_of_four() -> None:
    four = candidates(2.0, 5.0, 1.0, 4.0)
    assert places(four) == [(1, 2)]
    assert places(four, pairs="consecutive") == [(1, 3), (3, 0), (0, 2)]
    assert places(four, pairs="all") == [(1, 3), (1, 0), (1, 2), (3, 0), (3, 2), (0, 2)]
    assert places(four, pairs="all", min_margin=3.0) == [(1, 0), (1, 2), (3, 2)]
    assert places(four, pairs="consecutive", min_margin=2.0) == [(1, 0)], "3 is too near to 1, and 2 to 0"
    assert places(four, min_margin=4.5) == []
    assert places(four, min_margin=4.0) == [(1, 2)], "a margin of just as much is enough"
    assert places(candidates(1.0, 3.0, 3.0, 1.0)) == [(1, 3)], "of equals the first is the best, and the last the worst"
    assert places(worded((3.0, "same"), (2.0, "other"), (1.0, "same"))) == [(0, 1)], "equal texts make no pair"


@pytest.mark.parametrize("kind", PairsOf)
def test_equal_rewards_and_equal_answers_make_no_pair(kind: PairsOf) -> None:
    """Rewards are equal if they differ by the last bits of a batch, and answers if their reasoning alone does."""
    for equals in ([], candidates(1.0), candidates(0.0, -0.0), candidates(*(2.5 + index * 1e-7 for index in range(4)))):
        assert places(equals, pairs=kind) == []
    assert places(candidates(2.5, 2.5 + 1e-4), pairs=kind) == [(1, 0)]
    alike = [
        with_content(candidate(float(index), f"<think>way {index}</think>\n\n7", name=f"candidate[{index}]"), answer="7")
        for index in range(4)
    ]
    assert places(alike, pairs=kind) == []
    other = with_content(candidate(-1.0, "9", name="candidate[4]"), answer="9")
    assert places([*alike, other], pairs=kind) == (
        [(index, 4) for index in (3, 2, 1, 0)] if kind is PairsOf.ALL else [(3, 4)]
    )


def test_only_the_sides_of_the_pair_are_read() -> None:
    """Reading is parsing the row: of eight responses to a prompt six needn't be."""
    read = list[str]()

    def noting(candidate: Candidate) -> Candidate:
        return candidate._replace(read=lambda: read.append(candidate.name) or candidate.read())  # type: ignore[func-returns-value]

    assert places([noting(each) for each in candidates(*range(8))]) == [(7, 0)]
    assert set(read) == {"candidate[7]", "candidate[0]"}


def test_balanced_lengths_win_over_a_larger_margin_and_lose_against_too_small_a_one() -> None:
    candidates = worded((5.0, "x" * 10), (4.0, "y" * 10), (2.0, "y" * 14), (1.0, "y" * 30))
    assert places(candidates, length_balanced=True) == [(0, 1)]
    assert places(candidates, length_balanced=True, min_margin=2.0) == [(0, 2)]
    assert places(candidates, length_balanced=True, min_margin=3.5) == [(0, 3)]
    assert places(worded((5.0, "xx"), (2.0, "x"), (1.0, "xxx")), length_balanced=True) == [(0, 2)], "of the same, the worst"


def test_random_ones_differ_by_prompt_and_seed_and_all_come_up() -> None:
    def pick(seed: int) -> list[int]:
        candidates = [
            [
                candidate(-float(index), f"text {index}", prompt=f"p{prompt}", name=f"candidate[{index}]")
                for index in range(4)
            ]
            for prompt in range(60)
        ]
        return [places(candidate, pairs="best-random", pair_seed=seed)[0][1] for candidate in candidates]

    assert pick(0) == pick(0) != pick(1)
    assert set(pick(0)) == {1, 2, 3}
