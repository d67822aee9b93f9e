"""HelpSteer2: preferences of both kinds of rows, and Pearson's r against numpy's."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks.helpsteer2 import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")


def rated(reward: float | None, labels: int | Sequence[float], prompt: str, **outputs: float) -> Item:
    """A rated response; with one label all attributes have it."""
    numbers = [labels] * 5 if isinstance(labels, int) else labels
    fields: dict[str, object] = dict(zip(ATTRIBUTES, numbers, strict=True))
    return replace(item({"final": reward}), fields=fields, prompt=prompt, scores={"final": outputs})


def pair(first: float | None, second: float, strength: object, **fields: object) -> Item:
    responses = item({"response_1": first, "response_2": second})
    return replace(responses, fields={"preference_strength": strength, **fields})


def test_a_negative_strength_is_for_the_first_response() -> None:
    assert measures_of(BENCHMARK, [pair(2, 1, -3)])["accuracy"] == 1
    assert measures_of(BENCHMARK, [pair(2, 1, 3)])["accuracy"] == 0
    assert measures_of(BENCHMARK, [pair(1, 1, -1), pair(1, 1, 1)])["accuracy"] == 0, "a tie is wrong"
    figures = measures_of(BENCHMARK, [pair(2, 1, -1, split="validation"), pair(1, 2, -1, split="train")])
    assert (figures["accuracy"], figures["accuracy (train)"]) == (1, 0), "the training split isn't part of it"


def test_no_preference_and_no_label_are_nothing_to_be_right_about() -> None:
    items = [pair(2, 1, -1), pair(2, 1, 0), pair(2, 1, None), pair(2, 1, math.nan), rated(1, [4, 4, 4, 4, math.nan], "p")]
    grades = grades_of(BENCHMARK, items)
    assert measures_of(BENCHMARK, items) == {"accuracy": 1}
    assert grades.items == {"preferences": 3, "no preference": 1, "ratings": 1}
    assert grades.reasons == {
        "preferences": {"the preference_strength None is no number": 1, "the preference_strength nan is no number": 1},
        "ratings": {"the verbosity nan is no number": 1},
    }


def test_rated_rows_of_one_prompt_are_a_pair() -> None:
    items = [rated(2, 4, "p"), rated(1, 3, "p"), rated(2, 1, "q"), rated(1, 2, "r"), rated(0, 4, "r")]
    grades = grades_of(BENCHMARK, items)
    assert measures_of(BENCHMARK, items)["accuracy"] == 0.5
    assert grades.items == {"ratings": 5, "preferences": 2}, "q stands alone"
    assert grades_of(BENCHMARK, [rated(2, 4, "p"), rated(1, 4, "p")]).items["no preference"] == 1
    assert grades_of(BENCHMARK, [rated(1, 4, "p"), rated(None, 3, "p")]).reasons["preferences"] == {"failed: no_verdict": 1}


def test_attributes_are_correlated_with_their_ratings() -> None:
    draws = np.random.default_rng(1)
    labels = draws.integers(0, 5, (40, 5))
    outputs = labels + draws.normal(size=(40, 5)) + 100
    rewards = draws.normal(size=40)
    items = [
        rated(reward, of_row, str(position), **dict(zip(ATTRIBUTES, values, strict=True)))
        for position, (reward, of_row, values) in enumerate(
            zip(rewards.tolist(), labels.tolist(), outputs.tolist(), strict=True)
        )
    ]
    figures = measures_of(BENCHMARK, items)
    for index, name in enumerate(ATTRIBUTES):
        assert figures[f"r of {name}"] == pytest.approx(np.corrcoef(labels[:, index], outputs[:, index])[0, 1], abs=1e-9)
    assert figures["r of reward, helpfulness"] == pytest.approx(np.corrcoef(labels[:, 0], rewards)[0, 1], abs=1e-9)


def test_a_model_without_attributes_has_only_its_reward_correlated() -> None:
    figures = measures_of(BENCHMARK, [rated(index, index % 5, str(index)) for index in range(10)])
    assert figures.keys() == {"r of reward, helpfulness"}


def test_a_constant_reward_has_no_correlation() -> None:
    for constant, count in ((1.0, 10), (1 / 3, 10), (1 / 3, 100), (7.3, 1000), (-12.7, 1000)):
        figures = measures_of(BENCHMARK, [rated(constant, index * index % 5, str(index)) for index in range(count)])
        assert np.isnan(figures["r of reward, helpfulness"]), "no correlation, and neither zero nor what rounding leaves"


def test_rewards_that_are_nearly_equal_are_correlated_all_the_same() -> None:
    draws = np.random.default_rng(2)
    labels = draws.integers(0, 5, 200)
    rewards = 100 + 1e-3 * (labels + draws.normal(size=200))
    figures = measures_of(BENCHMARK, [rated(*both, "") for both in zip(rewards.tolist(), labels.tolist(), strict=True)])
    assert figures["r of reward, helpfulness"] == pytest.approx(np.corrcoef(rewards, labels)[0, 1], abs=1e-4)
