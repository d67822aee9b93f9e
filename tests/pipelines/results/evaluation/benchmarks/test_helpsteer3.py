"""HelpSteer3: the sign of a preference, no preference, good and bad edits, and principles."""

import math

import pytest

from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks.helpsteer3 import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of


def pair(first: float | None, second: float, preference: object, domain: str = "code") -> Item:
    return item({"response1": first, "response2": second}, overall_preference=preference, domain=domain)


def test_a_negative_preference_is_for_the_first_response() -> None:
    items = [pair(2, 1, -1), pair(2, 1, 1, "stem"), pair(1, 2, 3, "stem"), pair(1, 1, 1), pair(1, 1, -1)]
    figures = measures_of(BENCHMARK, items)
    assert figures == pytest.approx({"accuracy": 2 / 5, "code": 1 / 3, "stem": 1 / 2})
    assert grades_of(BENCHMARK, items).tied["preferences, code"] == 2


def test_no_preference_is_nothing_to_be_right_about() -> None:
    grades = grades_of(BENCHMARK, [pair(2, 1, 0), pair(None, 1, 1), pair(2, 1, None), pair(2, 1, math.nan)])
    assert grades.items == {"no preference": 1, "preferences, code": 3}
    assert grades.reasons["preferences, code"] == {
        "failed: no_verdict": 1,
        "the overall_preference None is no number": 1,
        "the overall_preference nan is no number": 1,
    }


def test_edits_and_principles() -> None:
    edits = [item({"original_response": 9, "good_edited_response": good, "bad_edited_response": 1}) for good in (2, 1)]
    principles = [item({"final": reward}, fulfilment=label) for reward, label in ((1, "Yes"), (0, "No"), (0, "Yes"))]
    figures = measures_of(BENCHMARK, [*edits, *principles])
    assert figures == pytest.approx({"edits": 1 / 2, "principles": 2 / 3})
