"""Whose verdict it is: the judge's, and never one that it quotes from what it judges."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.contracts.judge import Judge, Verdict
from actors.records import Reason
from actors.text.delimiters import Delimiters
from actors.text.reasoning import MARKS, Mark
from tests.actors.verdicts.test_verdicts import GOOD, JUDGES, by_a_users_token, by_principle, judge, outcome, said
from tests.dialects import answer_tag, boxed
from tests.dialects.final_judgement import MARK as MARKER
from tests.dialects.final_judgement import made
from tests.support.examples import examples

PLAIN = [good for good in GOOD if not re.search("think>|thought>", good[1], re.IGNORECASE)]
"""Good answers without reasoning, all of which is the answer."""
NAMES = sorted({name for name, *_ in PLAIN})
LAST = ("rm-r1", "rm-r1-instruct")
"""Judges whose verdict must be their last word."""
QUOTED = "The response says: It is 7. {} {}"
ENDS = [end for mark in MARKS for end in dict.fromkeys((mark.begin, mark.end))]


def answers(name: str) -> st.SearchStrategy[tuple[str, int, Verdict]]:
    return st.sampled_from([(text, shown, verdict) for other, text, shown, verdict in PLAIN if other == name])


def pairs(name: str) -> list[tuple[str, str, int, Verdict]]:
    """Two answers with different verdicts about as many responses; a few for each judge."""
    plain = [(text, shown, verdict) for other, text, shown, verdict in PLAIN if other == name]
    return [
        (text, other_text, shown, verdict)
        for text, shown, verdict in plain[:6]
        for other_text, other_shown, other in plain
        if shown == other_shown and verdict != other
    ][:40]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.begin)
def test_a_verdict_behind_a_quoted_mark_isnt_read_in_place_of_the_judges(name: str, mark: Mark) -> None:
    for text, other_text, shown, verdict in pairs(name):
        for quote in (mark.begin, mark.end):
            for whole in (f"{text}\n{QUOTED.format(quote, other_text)}", f"{QUOTED.format(quote, other_text)}\n{text}"):
                for reasoning in ("", "<think>Hm.</think>", "<thinking>Hm.</thinking>"):
                    reading = outcome(JUDGES[name], said(reasoning + whole), shown)
                    assert isinstance(reading, Reason), (reasoning + whole, verdict, reading)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@examples(200)
def test_two_different_verdicts_in_an_answer_are_none(name: str, data: st.DataObject) -> None:
    first, other = data.draw(answers(name)), data.draw(answers(name))
    between = data.draw(st.lists(st.sampled_from([*ENDS, "\n", " ", ".", "It is 7. ", "so", '"']), max_size=4).map("".join))
    before = data.draw(st.sampled_from(["", "<think>Hm.</think>", "[THINK]Hm.[/THINK]", "Hm. ", "\n"]))
    if first[1] == other[1] and first[2] != other[2]:
        reading = outcome(JUDGES[name], said(f"{before}{first[0]}\n{between}\n{other[0]}"), first[1])
        assert isinstance(reading, Reason)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@examples(200)
def test_quoting_a_mark_changes_nothing(name: str, data: st.DataObject) -> None:
    text, shown, verdict = data.draw(answers(name))
    quote = f"The response writes {data.draw(st.sampled_from(ENDS))} in it."
    before = data.draw(st.sampled_from(["", "<think>Hm.</think>", "[THINK]Hm.[/THINK]"]))
    assert outcome(JUDGES[name], said(f"{before}{quote}\n{text}"), shown) == verdict
    if name not in LAST:
        assert outcome(JUDGES[name], said(f"{before}{text}\n{quote}"), shown) == verdict


FORMS: Mapping[str, str] = {
    "genrm-json": '{{"why": "It says: It is 7. {}", "score_1": 4, "score_2": 2, "ranking": 2}}',
    "reward-anything": '{{"why": "It says: It is 7. {}", "scores": {{"model-1": 4, "model-2": 2}}}}',
    "r3-pointwise": '{{"explanation": "It says: It is 7. {}", "score": 4}}',
    "r3-pairwise": '{{"explanation": "It says: It is 7. {}", "score": "Response 1"}}',
    "rubric-object": '{{"why": "It says: It is 7. {}", "score": 4}}',
}


@pytest.mark.parametrize("name", FORMS)
def test_a_mark_that_is_quoted_inside_of_the_verdict_changes_nothing(name: str) -> None:
    shown = 1 if name in ("r3-pointwise", "rubric-object") else 2
    for mark in MARKS[1:]:
        for text in (FORMS[name].format(mark.end), f"<think>Hm.</think>{FORMS[name].format(mark.end)}"):
            assert isinstance(outcome(JUDGES[name], said(text), shown), Verdict), text


# A verdict that is one token.


@pytest.mark.parametrize("judge", [by_principle(), by_a_users_token()], ids=["genrm-principle", "rubric"])
@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.begin)
def test_a_token_that_contradicts_an_earlier_one_is_no_verdict(judge: Judge, mark: Mark) -> None:
    for before in ((), ("<think>", "Hm.", "</think>")):
        text = (*before, *MARKER, " No", ".\n", "It is 7. ", mark.end, "\n", *MARKER, " Yes", "<end>")
        assert outcome(judge, made(text, {}), 1) is Reason.TWO_VERDICTS
        quote = (*before, "It says ", mark.end, " here.\n", *MARKER, " Yes", "<end>")
        assert isinstance(outcome(judge, made(quote, {}), 1), Verdict)


# What is certain: where reasoning begins, and where it ends.


@pytest.mark.parametrize("mark", [mark for mark in MARKS if not mark.paired], ids=lambda mark: mark.begin)
def test_reasoning_ends_at_its_own_mark_alone(mark: Mark) -> None:
    a, b = answer_tag.A, answer_tag.B
    other = next(other for other in MARKS if other.end != mark.end)
    assert outcome(JUDGES["rm-r1"], said(f"{mark.begin}So {a}. {other.end}\n{mark.end}{b}"), 2) == answer_tag.SECOND
    assert outcome(JUDGES["rm-r1"], said(f"{mark.begin}So {other.end} {a}"), 2) is Reason.NO_VERDICT
    assert outcome(JUDGES["rm-r1"], said(f"{mark.begin}'{mark.end}{a}'. So:{mark.end}{b}"), 2) is Reason.TWO_VERDICTS
    assert outcome(JUDGES["rm-r1"], said(f"{mark.begin}'{mark.end}{a}'.\n{mark.end}Neither."), 2) is Reason.NO_VERDICT


def test_an_ordinary_word_at_the_beginning_hides_no_verdict() -> None:
    a, b = answer_tag.A, answer_tag.B
    for text in (f"Analysis: {a} It wrote assistantfinal {b}", f"Here is my thought process: {a} Here is my response: {b}"):
        assert outcome(JUDGES["rm-r1"], said(text), 2) is Reason.TWO_VERDICTS


# A family's marks of its verdict are delimiters.


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("rm-r1", answer_tag.A),
        ("rm-r1-instruct", answer_tag.B.replace(">", "> ")),
        ("genrm-boxed", boxed.grades("5, 1")),
        ("genrm-boxed", boxed.ranking("1")),
        ("genrm-principle", "Final judgement:  Yes"),
    ],
)
def test_a_response_cant_hold_a_verdict_of_the_familys_form(family: str, text: str) -> None:
    delimiters = Delimiters(judge(family).delimiters)
    assert delimiters.are_in(f"It is 7. {text}")
    assert not delimiters.are_in("<think>Hm.</think><answer>7</answer> is the final judgement, in a \\boxed{7}.")
