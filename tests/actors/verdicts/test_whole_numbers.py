"""A number that a rubric's pattern finds in a judge's text is the number that the judge wrote, or none is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engine.protocol import Generation
from actors.errors import Unreadable
from actors.models.rubric import FAMILY
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import RubricSettings
from tests.support.forms import forms

FOUND = r"""Score:\s*(?:[*_`"($\[]|<b>|\\boxed\{|\\frac\{)*(?P<score>[0-9]+(?:\.[0-9]+)?)"""


WHOLE = {
    "an end": forms(r"""4¦4.¦4, because¦4;¦4!¦4: good¦4?¦4...¦4.0¦4 ... because¦4 but"""),
    "a comment": forms(r"""
4 (good)¦4 - good¦4 – good¦4—good¦4 = good¦4 *good*¦4 or 'good'¦4 and that is it"""),
    "numbers of other things": forms(r"""
4⏎5. Next¦4⏎5 facts are right¦4⏎2. Style: 3¦4. 5 would need more¦4, the answer has 2 errors¦4 with 2 errors
4 (2 errors)¦4 (2-3 small errors)¦4 because 3 out of 10 facts are wrong¦4⏎⏎The answer is 5.¦4 | 2 errors¦4 : 2 errors
4; 2 errors¦4 (the best of 3 answers)¦4. The best is 7¦4, as 2 is right¦4 for the top 10 list¦4 - the best of the 3
4 (5 facts, 3 right)¦4 (3 errors, 2 typos)¦4 with at most 2 errors¦4 in 2 ways¦4 for 2 reasons¦4, "style": 5}
4 - one of the best¦4, one of the best¦4 2: 5"""),
    "of five": forms(r"""
4/5¦4 / 5¦4/5.¦4/5.0¦4 out of 5¦4 out of five¦4 of 5¦4 (out of 5)¦4/5 points¦4 / five¦4 | 5¦4 : 5¦4 (5)¦4\text{/}5
4/**5**¦4 where 5 is best¦4 (1 = worst, 5 = best)¦4 (best: 5)¦4 out of a possible 5¦4 on a scale of 1 to 5
4 (on a scale of 1 to 5)¦4 (1-5)¦4 on a 5-point scale¦4 stars out of 5¦4 points / 5¦4/5 (80%)¦4 ⭐¦4分¦4/5分¦4 stars
4 points."""),
    "marks": forms(r"""
**4**¦(4)¦[[4]]¦`4`¦"4"¦<b>4</b>¦**4**/5¦[[4]] out of 5¦\boxed{4}¦$\frac{4}{5}$"""),
}
PARTS = {
    "of another many": [
        *forms(r"""
4/10¦4 / 10¦4/ 10¦4⏎/10¦4 out of 10¦4 out of ten¦4 of 10¦4/100¦4/one hundred¦4 ÷ 10¦4 points out of 10
4 stars out of 10¦4 on a scale of 1 to 10¦4 (on a scale of 1-10)¦4 (1-10)¦4, out of 10¦4 - out of 10¦4 (scale: 1-10)
4 on a ten-point scale¦4 (out of 10)¦4 (/10)¦4 von 10¦4 sur 10¦4 de 10¦4 max 10¦4 of a maximum of 10¦4 over 10¦4/5/10
4／10¦4⁄10¦**4**/10¦**4** out of 10¦[[4]]/10¦(4)/10¦<b>4</b>/10¦"4"/10¦\boxed{4}/10¦$\frac{4}{10}$"""),
        "4\u200b/10",
        "4" + " " * 100 + "/10",
        "4\xa0/\xa010",
    ],
    "of another many, otherwise parted": [
        *forms(r"""
4|10¦4 | 10¦| 4 | 10 |¦4 : 10¦4; 10¦4 \ 10¦4 [10]¦4 (10)¦4 <10>¦4 {10}¦4\text{/}10¦4 \text{ out of } 10¦4\,/\,10¦4\/10
4 \over 10¦4 \mid 10¦4 \div 10¦4 // 10¦4/**10**¦**4** / **10**¦4 / `10`¦4 / "10"¦4/<b>10</b>¦<b>4</b>/<sub>10</sub>
4 / (10)¦4&#47;10¦4 per 10¦4 on 10¦4 from 10¦4 vs 10¦4 vs. 10¦4 out-of 10¦4 out of the 10¦4 out of a full 10¦4 & 10
4 # 10¦4 @ 10¦4 => 10¦4 > 10¦4 < 10¦4 | ten¦4 * 10¦4|10|2"""),
        "4 ∣ 10",
    ],
    "of another many, by its best": forms(r"""
4 where 10 is best¦4 (where 10 is the best)¦4, 10 being the best¦4, with 10 as the highest¦4 (10 = best)
4 (10 is perfect)¦4 (0 = worst, 10 = best)¦4, where the best is 10¦4 (best: 10)¦4 (max: 10)¦4 (10 max)
4 with a maximum of 10¦4 (the highest possible score is 10)¦4 where 10 means excellent¦4 (top score 10)¦4 (0–10)
4 [0-10]¦4 on a 1-10 scale¦4 on the 10-point scale¦4 points (max. 10)¦4 (scale 0..10)"""),
    "of another many, as a user may not think of it": forms(r"""
4 in 10¦4 (10-point scale)¦4 on a 10 scale¦4-out-of-10¦4 · 10¦4 (10 best)¦4 (0 worst, 10 best)
4 (lowest 0, highest 10)¦4 (0 – 10 scale)¦4 (from 10)¦4 (on 10)¦4 (10分制)¦4 (满分: 10)¦4 (1=bad, 10=great)
4 if 10 is best¦4 • 10¦4 :: 10¦4 || 10¦4 (of 10)¦4, scale 1-10¦4!10"""),
    "of another many, in other words": forms(r"""
4 (max score 10)¦4 Punkte von 10¦4（满分10分）¦4 (maximum score: 10)"""),
    "taken back": forms(r"""4 -> 2¦4 → 2¦4 (revised to 2)¦4, no wait, 2¦4 minus¦4ish"""),
    "a percentage": forms(r"""4%¦4 %¦4 percent¦4 per cent¦4％¦4\%¦4/5%"""),
    "a range": forms(r"""
4-5¦4–5¦4—5¦4−5¦4 - 5¦4 – 5¦4‑5¦4 to 5¦4 to five¦4 through 5¦4~5¦4 ~ 5¦4..5¦4...5¦4…5¦**4**-5¦4/5-5/5¦4/5 to 5/5¦4 ± 1
4 +/- 1¦4 \pm 1¦4-5/5"""),
    "a fraction": forms(r"""
4 1/2¦4½¦4 ½¦4⅔¦4 1⁄2¦4 and a half¦4 and 1/2¦4 stars and a half¦4 a half¦4-1/2¦4 point 5¦4 point five¦4.5.1¦4,5¦4.5
4·5¦4٫5¦4，5¦4．5"""),
    "one of two": forms(r"""
4 or 5¦4, or 5¦4 or five¦4 (or 5)¦4, maybe 5¦4/5 or 5/5¦4 or more¦4 and 5¦4, 5"""),
    "thousands": [*forms(r"""4,000¦4.000.000¦4 000¦4'000¦4’000¦4_000¦4\,000¦4{,}000¦4 thousand"""), "4\u202f000"],
    "more of it": forms(r"""40¦4٥¦4 5¦4e3¦4E1¦4k¦4²¦4+¦4 plus¦4 + 1¦4 × 2¦4x2¦4:5¦4^2"""),
}


def read(text: str, pattern: str = FOUND, *, low: float = 1, high: float = 5) -> float | None:
    settings = RubricSettings(prompt="{{ response }}", pattern=pattern, low=low, high=high)
    judge = FAMILY.with_settings(JudgeSettings(rubric=settings))
    try:
        return judge.verdict(Generation(text, (), "stop", (), 0, 0), 1).scores[0]["score"]
    except Unreadable:
        return None


@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_number_is_read_whatever_stands_around_it(kind: str) -> None:
    numbers = {text: read(f"It is right. Score: {text}") for text in WHOLE[kind]}
    assert numbers == dict.fromkeys(WHOLE[kind], 4.0)


def test_a_part_of_a_number_is_no_verdict() -> None:
    for parts in PARTS.values():
        numbers = {text: read(f"It is right. Score: {text}") for text in parts if text != "4.5"}
        assert {text: number for text, number in numbers.items() if number is not None} == {}


DIGIT = "(?P<score>[0-9])"


def test_nor_is_a_digit_of_it() -> None:
    for parts in PARTS.values():
        assert [text for text in parts if read(f"Score: {text}", rf".*?Score:\D*?{DIGIT}") is not None] == []


def test_the_end_of_a_number_is_none_either() -> None:
    for text in ("4/5", "4 of 5", "4 out of 5", "3 to 4", "3-4", "3–4", "4 or 5", "3.4", "14", "-4", "1..4"):
        assert read(f"Score: {text}", f".*{DIGIT}") is None


def test_a_number_may_say_the_scale_that_the_rubric_has() -> None:
    cases: list[tuple[str, float, float | None]] = [
        ("85%", 100, 85),
        ("85 percent", 100, 85),
        ("85/100", 100, 85),
        ("85 out of a hundred", 100, 85),
        ("8/10 (80%)", 10, 8),
        ("8 out of ten", 10, 8),
        ("8/100", 10, None),
        ("8%", 10, None),
        ("0.8%", 1, None),
        ("0.8/1", 1, 0.8),
    ]
    for text, high, number in cases:
        assert read(f"Score: {text}", low=0, high=high) == number


def test_nor_is_a_number_whose_scale_stands_before_it() -> None:
    befores: list[str] = [
        *(
            "Score (1-10):",
            "Score (0 to 10) =",
            "Score out of 10:",
            "Score/10:",
            "Score (out of 10):",
            "Score on a scale of 1 to 10:",
        ),
        *("Score [max 10]:", "Score (maximum 10):", "**Score (/10)**:", "Score on a scale from 0 - 100:", "Score, 1–10:"),
    ]
    for before in befores:
        assert read(f"{before} 4", r"Score.*?[:=]\D*([0-9])") is None
        assert read(f"{before} 4", r"Score.*?[:=]\D*([0-9])", high=100 if "100" in before else 10) == 4
        assert read("3 out of 10 facts are wrong. Score: 4 as 2 are fine", r"Score.*?[:=]\D*([0-9])") == 4


TWO = {"prompt": "{{ response_1 }} {{ response_2 }}", "shows": "two", "low": 1, "high": 5}


def test_two_numbers_that_are_both_asked_for_are_two() -> None:
    for between in (", ", " to ", "/", " and ", " - ", " vs ", "/5, ", " or ", " 2: "):
        pattern = f"Scores: (?P<score_1>[0-9]){between}(?P<score_2>[0-9])"
        judge = FAMILY.with_settings(JudgeSettings(rubric=RubricSettings.model_validate(TWO | {"pattern": pattern})))
        verdict = judge.verdict(Generation(f"Scores: 4{between}2", (), "stop", (), 0, 0), 2)
        assert verdict.scores == ({"score": 4.0}, {"score": 2.0})
        with pytest.raises(Unreadable):
            judge.verdict(Generation(f"Scores: 4{between}2/10", (), "stop", (), 0, 0), 2)


MARKS = st.sampled_from([("", ""), ("**", "**"), ("(", ")"), ("`", "`"), ("[[", "]]"), ('"', '"'), ("<b>", "</b>")])


RESTS = [text[1:] for kind in PARTS.values() for text in kind if text.startswith("4")]


@given(MARKS, st.sampled_from(RESTS))
def test_marks_around_a_number_hide_nothing(marks: tuple[str, str], rest: str) -> None:
    begin, end = marks
    assert read(f"Score: {begin}4{rest}{end}", rf"Score:\D*?{DIGIT}") is None


@given(st.integers(1, 5), st.integers(1, 10_000))
def test_another_many_is_another_number(number: int, many: int) -> None:
    for text in (f"{number}/{many}", f"{number} out of {many}", f"{number} (1-{many})", f"{number}/{many:,}"):
        assert read(f"Score: {text}") == (float(number) if many == 5 else None)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("stuck", [" ", '"', " (", "/5", "* ", "of the ", "or maybe ", "</b>", "ﷺ", "1 to ", "a ", "\n "])
def test_what_follows_numbers_is_looked_at_in_linear_time(stuck: str) -> None:
    assert read(f"Score: 4{stuck * 3000}x\n" * 30 + f"Score: 4{stuck * 40}x\n" * 900) in (4.0, None)
