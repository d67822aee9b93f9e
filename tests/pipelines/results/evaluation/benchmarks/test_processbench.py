"""ProcessBench: the harmonic mean of two accuracies by hand, and what a model without step rewards gets."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from actors.records import Reading
from pipelines.data.formats import RowShape
from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks.processbench import BENCHMARK
from pipelines.results.evaluation.evaluate_corpus import evaluate
from pipelines.results.evaluation.statistics.intervals import mean_cells
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus
from tests.support.evaluation import grades_of, item, measures_of

RIGHT, WRONG = 0.9, 0.1


def solution(label: object, *steps: float, subset: str = "gsm8k") -> Item:
    return replace(item({"final": min(steps)}, id=f"{subset}-0", label=label), steps={"final": steps})


def test_both_accuracies_and_their_harmonic_mean() -> None:
    items = [solution(1, RIGHT, WRONG, WRONG)] * 3 + [solution(1, RIGHT, RIGHT, WRONG)]  # 3 of 4: the first one counts
    right = [solution(-1, RIGHT, RIGHT), solution(-1, RIGHT, WRONG)]
    figures = measures_of(BENCHMARK, [*items, *right])
    assert (figures["gsm8k, erroneous"], figures["gsm8k, correct"]) == (0.75, 0.5)
    assert figures["gsm8k"] == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    assert "score" not in figures, "a mean of fewer subsets is another number"
    measures = BENCHMARK.measures(mean_cells(grades_of(BENCHMARK, [*items, *right]).cells, judged=False))
    assert {measure.name: measure.n for measure in measures} == {"gsm8k": 6, "gsm8k, erroneous": 4, "gsm8k, correct": 2}


@pytest.mark.parametrize("steps", [(RIGHT, RIGHT), (WRONG, WRONG)])
def test_who_says_the_same_of_everything_gets_nothing(steps: tuple[float, ...]) -> None:
    items = [solution(1, *steps), solution(-1, *steps)]
    assert measures_of(BENCHMARK, items)["gsm8k"] == 0


def test_half_is_right_and_the_score_is_the_mean_of_the_subsets() -> None:
    names = ("gsm8k", "math", "olympiadbench", "omnimath")
    items = [solution(label, *steps, subset=name) for name in names for label, steps in ((-1, (0.5,)), (0, (0.49,)))]
    assert measures_of(BENCHMARK, items)["score"] == 1
    assert measures_of(BENCHMARK, [*items, solution(0, RIGHT)])["score"] == pytest.approx((2 * 0.5 / 1.5 + 3) / 4)
    other_subset = [solution(label, RIGHT, subset="other") for label in (-1, 0)]
    figures = measures_of(BENCHMARK, [*items, *other_subset])
    assert (figures["other"], figures["score"]) == (0, 1), "a subset that ProcessBench doesn't have isn't part of its score"
    counts = {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000}
    assert (BENCHMARK.split_of(counts), BENCHMARK.split_of({**counts, "math": 999})) == ("published", None)


def test_what_cant_be_graded_is_listed() -> None:
    whole = item({"final": 1.0}, id="math-1", label=0)
    grades = grades_of(
        BENCHMARK, [whole, solution(2, RIGHT, RIGHT), solution(None, RIGHT), item({"final": None}, id="math-2")]
    )
    assert grades.cells == {}
    assert grades.reasons == {
        "math": {"the model gives no rewards of steps": 1, "failed: no_verdict": 1},
        "gsm8k": {"the label 2 is no step of 2": 1, "the label None is no step of 1": 1},
    }


def test_a_label_of_a_float_column_is_the_integer_that_it_is() -> None:
    figures = measures_of(BENCHMARK, [solution(-1.0, RIGHT, RIGHT), solution(1.0, RIGHT, WRONG)])
    assert (figures["gsm8k, correct"], figures["gsm8k, erroneous"]) == (1, 1)
    assert grades_of(BENCHMARK, [solution(label, RIGHT) for label in (0.5, True, math.nan)]).cells == {}


def test_the_steps_of_a_scored_corpus_are_graded(tmp_path: Path) -> None:
    rows = [
        {"id": f"math-{index}", "problem": "p", "steps": ["a", "b"], "label": label} for index, label in enumerate((1, -1))
    ]
    readings = [[Reading(0.1, {"reward": 0.1}, steps=steps)] for steps in ((0.9, 0.1), (0.9, 0.2))]
    folder = judged_corpus(tmp_path / "s", rows, readings, RowShape("processbench"), parquet=True, steps=True, prefix="x_")
    (evaluation,) = evaluate(build(EvaluateSettings, {"scored": [folder], "partial": True}))
    figures = {figure.name: figure.value for figure in evaluation.figures}
    assert evaluation.benchmark == "processbench"
    assert (figures["math, erroneous"], figures["math, correct"], figures["math"]) == (1, 0, 0)
