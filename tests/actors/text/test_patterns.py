"""Patterns take time in proportion to the text, whatever a judge was led to write, and mean what they mean to Python."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engine.protocol import Generation
from actors.errors import SettingsError, Unreadable
from actors.models.rm_r1 import RmR1
from actors.models.rubric import FAMILY
from actors.records import Reason
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import RubricSettings
from actors.verdicts.parsing import objects
from actors.verdicts.verdict_token import difference
from pipelines.settings.options import validate

EXPONENTIAL = "(a+)+b"
LONG = 200_000


def rubric(**fields: Any) -> Any:
    settings = RubricSettings(**{"prompt": "Rate {{ response }}", "low": 0, "high": 9, **fields})
    return FAMILY.with_settings(JudgeSettings(rubric=settings))


def verdict(family: Any, text: str) -> Any:
    return family.verdict(Generation(text, (), "stop", (), 0, 0), 1)


def test_a_pattern_of_a_users_takes_linear_time() -> None:
    with pytest.raises(Unreadable, match="no_verdict"):
        verdict(rubric(pattern=f"{EXPONENTIAL}(?P<score>[0-9])"), "a" * LONG)


def test_so_does_a_pattern_in_a_schema() -> None:
    schema = {"properties": {"why": {"type": "string", "pattern": EXPONENTIAL}, "score": {"type": "integer"}}}
    with pytest.raises(Unreadable, match="no_verdict"):
        verdict(rubric(json_schema=schema), '{"why": "' + "a" * LONG + '", "score": 7}')
    assert verdict(rubric(json_schema=schema), '{"why": "aab", "score": 7}').scores == ({"score": 7.0},)


def test_a_verdict_that_is_found_without_end_is_none() -> None:
    with pytest.raises(Unreadable, match="two_verdicts"):
        verdict(rubric(pattern="x([0-9])(?:.*y)?"), "x7 " * LONG)


@pytest.mark.parametrize(
    "fields",
    [
        {"pattern": r"(?<=Rating: )([0-9])"},
        {"pattern": r"([0-9]) is \1"},
        {"pattern": r"([0-9](?!\.))"},
        {"json_schema": {"properties": {"score": {"type": "integer"}, "why": {"pattern": "(?=a)"}}}},
        {"json_schema": {"properties": {"score": {"type": "integer"}}, "allOf": [{"items": {"pattern": r"(a)\1"}}]}},
    ],
)
def test_a_pattern_that_cant_is_refused_with_the_reason(fields: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="RE2's syntax, which has neither lookaround nor backreferences"):
        validate(JudgeSettings, {"rubric": {"prompt": "Rate {{ response }}", "low": 0, "high": 9, **fields}})


def test_patterns_of_names_are_refused_and_names_that_look_like_keywords_arent() -> None:
    schema = {"patternProperties": {"^s": {"type": "integer"}}, "properties": {"score": {"type": "integer"}}}
    with pytest.raises(SettingsError, match="name the properties"):
        validate(JudgeSettings, {"rubric": {"prompt": "{{ response }}", "low": 0, "high": 9, "json_schema": schema}})
    named = {"properties": {"pattern": {"type": "integer"}, "patternProperties": {"type": "integer"}}}
    assert rubric(json_schema=named).text_outputs() == ("pattern", "patternProperties")


def test_the_end_of_a_pattern_is_that_of_the_text() -> None:
    for text in ("Rating: 7", "Rating: 7\n", "It has 3!\nRating: 7\n\n"):
        assert verdict(rubric(pattern="Rating: ([0-9])$"), text).scores == ({"score": 7.0},)
    with pytest.raises(SettingsError, match="invalid escape sequence"):
        validate(JudgeSettings, {"rubric": {"prompt": "Rate {{ response }}", "low": 0, "high": 9, "pattern": r"([0-9])\Z"}})


def test_half_a_character_is_no_verdict() -> None:
    with pytest.raises(Unreadable, match="no_verdict"):
        verdict(rubric(pattern="([0-9])"), "7\ud800")


# Our own.


def test_our_own_readers_take_linear_time() -> None:
    for text in ("</answer>" * LONG + "x", "[[A]]</answer>" + "</answer>" * LONG + "x"):
        with pytest.raises(Unreadable):
            verdict(RmR1(), f"<answer>{text}")
    assert objects('{"' + "a\\n" * LONG, "score")[0] == []
    assert objects('{"a" ' * LONG, "score")[0] == []
    generation = Generation("Yes " + " " * LONG + "x", (5,), "stop", (), 0, 0)
    for after in (" ", ":", "Yes"):
        with pytest.raises(Unreadable):
            difference(generation, after, (" Yes", " No"), (5, 6))


MARKS = (" Yes", " No")


@given(
    st.lists(st.sampled_from(["Yes", " Yes", " No", " ", "\t", "\n", "Judgement:", "Judgement: ", ":", "No"]), max_size=6)
)
def test_a_verdict_token_is_found_as_its_pattern_says(parts: list[str]) -> None:
    text = "".join(parts)
    for after in ("Judgement:", "Judgement: ", " ", ":\t"):
        words = "|".join(map(re.escape, MARKS))
        ending = re.search(f"{re.escape(after)}[ \\t]*(?:{words})(?P<rest>\\s*)$", text)
        stem = re.escape(after.rstrip(" \t") or after)
        differs = ending is not None and len(set(re.findall(rf"{stem}[ \t]*(Yes|No)(?:(?!\w)|(?={stem}))", text))) == 2
        # The token stands as far from the end as there are characters after it.
        for index in range(len(text) + 2):
            ids = (5, *(9,) * index)
            generation = Generation(text, ids, "stop", ({5: -1.0, 6: -3.0},) * len(ids), 0, 0)
            if ending is not None and not differs and index <= len(ending["rest"]) + 1:
                assert difference(generation, after, MARKS, (5, 6)) == 2.0
            else:
                with pytest.raises(Unreadable) as unreadable:
                    difference(generation, after, MARKS, (5, 6))
                assert unreadable.value.reason is (Reason.TWO_VERDICTS if differs else Reason.NO_VERDICT)
