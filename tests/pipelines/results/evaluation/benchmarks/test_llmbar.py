"""LLMBar: ties count half on average, and not at all where both orders must be right."""

import math

import pytest

from pipelines.results.evaluation.benchmarks.llmbar import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of


def test_average_and_both() -> None:
    rows = [
        item({"output_1": 2.0, "output_2": 1.0}, label=1),
        item({"output_1": 2.0, "output_2": 1.0}, label=2),
        item({"output_1": 1.0, "output_2": 1.0}, label=2),
    ]
    assert measures_of(BENCHMARK, rows) == pytest.approx({"average": 0.5, "both": 1 / 3})


def test_an_unknown_label_is_no_grade() -> None:
    assert grades_of(BENCHMARK, [item({"output_1": 1.0, "output_2": 2.0}, label=0)]).reasons == {
        "all": {"the label 0 is neither 1 nor 2": 1}
    }


def test_a_label_of_a_float_column_is_the_integer_that_it_is() -> None:
    rows = [item({"output_1": 2.0, "output_2": 1.0}, label=1.0), item({"output_1": 2.0, "output_2": 1.0}, label=2.0)]
    assert measures_of(BENCHMARK, rows) == pytest.approx({"average": 0.5, "both": 0.5})
    unlabelled = [item({"output_1": 1.0, "output_2": 2.0}, label=label) for label in (1.5, True, "1", math.nan)]
    assert grades_of(BENCHMARK, unlabelled).cells == {}
