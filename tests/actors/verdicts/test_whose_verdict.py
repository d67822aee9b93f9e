"""Whose verdict it is: the judge's, and never one that it quotes from what it judges."""

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.contracts.judge import Verdict
from actors.records import Reason
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import RubricSettings
from actors.text.delimiters import Delimiters
from actors.text.reasoning import MARKS, Mark
from tests.actors.verdicts.test_verdicts import GOOD, JUDGES, by_a_users_token, by_principle, judge, outcome, said
from tests.dialects import answer_tag, boxed, json_grades, listwise, rated
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


def test_a_verdict_behind_a_quoted_mark_isnt_read_in_place_of_the_judges() -> None:
    for name in NAMES:
        for mark in MARKS:
            for text, other_text, shown, verdict in pairs(name):
                for quote in (mark.begin, mark.end):
                    for whole in (
                        f"{text}\n{QUOTED.format(quote, other_text)}",
                        f"{QUOTED.format(quote, other_text)}\n{text}",
                    ):
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


def test_a_token_that_contradicts_an_earlier_one_is_no_verdict() -> None:
    for judge_of_a_token in (by_principle(), by_a_users_token()):
        for mark in MARKS:
            for before in ((), ("<think>", "Hm.", "</think>")):
                text = (*before, *MARKER, " No", ".\n", "It is 7. ", mark.end, "\n", *MARKER, " Yes", "<end>")
                assert outcome(judge_of_a_token, made(text, {}), 1) is Reason.TWO_VERDICTS
                quote = (*before, "It says ", mark.end, " here.\n", *MARKER, " Yes", "<end>")
                assert isinstance(outcome(judge_of_a_token, made(quote, {}), 1), Verdict)


# What is certain: where reasoning begins, and where it ends.


def test_reasoning_ends_at_its_own_mark_alone() -> None:
    marks: list[Mark] = [mark for mark in MARKS if not mark.paired]
    for mark in marks:
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


# A rubric's own pattern.


def reading(pattern: str, text: str, **settings: object) -> Verdict | Reason:
    rubric = {"prompt": "{{ response }}", "pattern": pattern, "low": 1, "high": 10} | settings
    settings_of_judge = JudgeSettings(rubric=RubricSettings.model_validate(rubric))
    return outcome(judge("rubric").with_settings(settings_of_judge), said(text), 2 if "shows" in settings else 1)


PATTERNS = {
    "plain": ("Score: (?P<score>[0-9]+)", "Score: {}"),
    "any space": (r"(?i)score\s*:\s*(\d+)", "Score: {}"),
    "the last": (r"(?s).*Score: (\d+)", "Score: {}"),
    "the first": (r".*?Score:\D*?(\d+)", "Score: {}"),
    "bold": (r"\*\*Score:\*\* (\d+)", "**Score:** {}"),
    "tag": (r"<score>(\d+)</score>", "<score>{}</score>"),
    "brackets": (r"Score: \[\[(\d+)\]\]", "Score: [[{}]]"),
    "box": (r"Score: \\boxed\{(\d+)\}", r"Score: \boxed{{{}}}"),
    "of ten": (r"Score: (\d+)/10", "Score: {}/10"),
    "a line": (r"(?m)^Score: (\d+)$", "Score: {}"),
    "equals": (r"SCORE = (\d+)", "SCORE = {}"),
    "one of several": (r"(?i)(?:score|rating|grade): (\d+)", "Score: {}"),
}
SPELLINGS = (
    *("**Score**: 1", "**Score:** 1", "*Score:* 1", "__Score__: 1", "Score : 1", "score = 1", "score: 1", "SCORE: 1"),
    *("### Score\n1", "## Score\n\n**1**", "Score:1", "Score:\n1", "Score\t: 1", "`Score`: `1`", "~~Score~~: 1", "Score：1"),
    *(
        "Score: **1**",
        "**Score: 1**",
        "<b>Score</b>: 1",
        "Score - 1",
        "Score — 1",
        "Score → 1",
        "Score -> 1",
        "| Score | 1 |",
    ),
    *(
        "(Score: 1)",
        "[Score]: 1",
        "Score = 1/10",
        "Score: 01",
        '"score": 1',
        "'Score': '1'",
        "Ｓｃｏｒｅ: 1",
        "Score\u200b: 1",
    ),
    *(
        "The score is 1.",
        "**Score**: 1/10",
        "- **Score**: 1",
        "> Score = 1",
        "1. **Score** = 1",
        "Score (1-10) = 1",
        "Score: one",
    ),
    *(
        "Score (out of 10) = 1",
        "### Score: 1",
        "Score&nbsp;= 1",
        "Score: [[ 1 ]]",
        "<score> 1 </score>",
        r"\textbf{Score}: 1",
    ),
)


def test_a_quoted_match_isnt_read_where_the_judges_own_is_spelled_otherwise() -> None:
    for pattern, form in PATTERNS.values():
        texts = {
            text
            for own in SPELLINGS
            for quote in (f'The response says "{form.format(5)}" in it.', f"It ends with:\n{form.format(5)}")
            for text in (f"{quote}\n{own}\n", f"{own}\n{quote}")
        }
        wrong = {
            text: read
            for text in texts
            if isinstance(read := reading(pattern, text), Verdict) and read.scores != ({"score": 1.0},)
        }
        assert wrong == {}


def test_the_same_number_in_another_spelling_changes_nothing() -> None:
    for pattern, form in PATTERNS.values():
        readings = {
            own: reading(pattern, f"{own.replace('1', '5').replace('one', 'five').replace('05', '5')}\n\n{form.format(5)}")
            for own in SPELLINGS
            if "(" not in own
        }
        assert {own: read for own, read in readings.items() if read != Verdict(({"score": 5.0},))} == {}


def test_words_about_scores_hide_no_verdict() -> None:
    all_words: list[str] = [
        *(
            "A score of 9 would need more.",
            "On a scale of 1 to 10, this is short.",
            "The highest score is 10.",
            "Score it is.",
        ),
        *(
            "### Score\nThe answer is short.",
            "### Score (1-10)\n",
            "I score 3 facts.",
            "The score depends on 2 things.",
            "Scores: 3",
        ),
        *(
            "The score 9 would need more facts.",
            "## Scoring\n1. It is right.",
            "My underscore_score_2: 3",
            "subscore: 3",
            "Score\n1. Right",
        ),
        *(
            "The scores are 3 and 4.",
            "The maximum possible score is 10.",
            "A perfect score = 10.",
            "The game's scoreboard says 3:1.",
        ),
    ]
    for words in all_words:
        for text in (f"{words}\nScore: 5", f"Score: 5\n{words}"):
            assert reading("Score: ([0-9]+)", text) == Verdict(({"score": 5.0},)), text


CHOICES = {
    "shows": "two",
    "prompt": "{{ response_1 }} {{ response_2 }}",
    "winners": {"A": "first", "B": "second", "tie": "tie"},
}


def test_a_choice_that_is_quoted_isnt_read_where_the_judges_own_is_spelled_otherwise() -> None:
    all_own: list[str] = [
        *(
            "**Winner**: B",
            "*Winner:* B",
            "winner: B",
            "WINNER = B",
            "Winner : B",
            "### Winner\nB",
            "Winner: **B**",
            "Winner: b",
        ),
        *(
            "Winner is B.",
            "Winner: Response B",
            "| Winner | B |",
            "Winner - B",
            "Winner: [[B]]",
            "<winner>B</winner>",
            "**Winner**: tie",
        ),
        *(
            "**Winner**: B, as it is right",
            "Winner: Tie",
            "Winner: assistant B",
            "The winner is B",
            '"winner": "B"',
            "Winner: the tie",
        ),
    ]
    for own in all_own:
        for pattern, quote in (
            ("Winner: (?P<winner>A|B|tie)", "Winner: A"),
            (r"Winner: \[\[(?P<winner>A|B|tie)\]\]", "Winner: [[A]]"),
        ):
            for text in (f"It says '{quote}'.\n{own}", f"{own}\nIt says '{quote}'."):
                assert reading(pattern, text, **CHOICES) in (
                    Reason.TWO_VERDICTS,
                    Reason.NO_VERDICT,
                    Verdict(({"win": 0.0}, {"win": 1.0}), (0.0, 1.0)),
                ), text


def test_a_choice_in_brackets_alone_is_one_in_any_spelling() -> None:
    for own in (
        "[[ B ]]",
        "[[b]]",
        "[[**B**]]",
        "**[[ B ]]**",
        "[ [B] ]",
        r"\[\[B\]\]",
        "【【B】】",
        "[[Ｂ]]",
        "[[tie ]]",
        "[[Response B]]",
    ):
        for text in (f"It says [[A]].\n{own}", f"{own}\nIt says [[A]]."):
            assert reading(r"\[\[(?P<winner>A|B|tie)\]\]", text, **CHOICES) in (Reason.TWO_VERDICTS, Reason.NO_VERDICT), text


@pytest.mark.parametrize(
    "words",
    ["The winner: a close call.", "No winner is clear.", "The winner gets [1] point.", "[A] is short.", "Winner: see below"],
)
def test_words_about_winners_hide_no_verdict(words: str) -> None:
    for pattern, verdict in (("Winner: (?P<winner>A|B|tie)", "Winner: B"), (r"\[\[(?P<winner>A|B|tie)\]\]", "[[B]]")):
        assert reading(pattern, f"{words}\n{verdict}", **CHOICES) == Verdict(({"win": 0.0}, {"win": 1.0}), (0.0, 1.0))


def test_a_label_in_capitals_is_no_word_of_the_text() -> None:
    pattern = r"\[RESULT\] (?P<score>\d+)"
    assert reading(pattern, "The result is 42. Score: 9.\n[RESULT] 5") == Verdict(({"score": 5.0},))
    for spelling in ("**RESULT**: 1", "RESULT: 1", "[RESULT]: 1", "# [RESULT]\n1"):
        assert reading(pattern, f"It says: [RESULT] 5\n\n{spelling}") is Reason.TWO_VERDICTS


@pytest.mark.parametrize(
    ("pattern", "quote", "spellings"),
    [
        (r"(\d+)/10", "5/10", ("1 / 10", "**1/10**", "1/**10**", "`1`/10")),
        (r"(\d+) points", "5 points", ("1 Points", "**1** points", "1  points.")),
        (
            "Score: ([0-9]+)",
            "Score: 5",
            ("Score\n-----\n**1**", "<h2>Score</h2>\n1", "Score := 1", "Score: ①", "My own score: 1"),
        ),
        (r"facts=(\d)", "facts=5", ("facts: 1", "**Facts** = 1", "### Facts\n1", "facts is 1")),
    ],
)
def test_a_label_may_stand_behind_the_number(pattern: str, quote: str, spellings: Sequence[str]) -> None:
    for words in spellings:
        for text in (f"It says {quote}.\n{words}\n", f"{words}\nIt says {quote}."):
            assert isinstance(reading(pattern, text), Reason), text
    assert reading(pattern, f"It is right.\n{quote}, with 2 errors in 3/4 of it") == Verdict(({"score": 5.0},))


@pytest.mark.parametrize("words", ["**B** is better", "B is Better", "Response B is  better."])
def test_a_choice_before_its_label_is_one_in_any_spelling(words: str) -> None:
    for text in (f"It says A is better.\n{words}", f"{words}\nIt says A is better."):
        assert isinstance(reading("(?P<winner>A|B|tie) is better", text, **CHOICES), Reason), text
    assert reading("(?P<winner>A|B|tie) is better", "A is better, not B.", **CHOICES) == Verdict(
        ({"win": 1.0}, {"win": 0.0}), (1.0, 0.0)
    )


# An object, and its own verdict without one.

QUOTED_OBJECTS: Mapping[str, tuple[str, int, Sequence[str]]] = {
    "genrm-json": (
        json_grades.OTHER,
        2,
        (
            "### score_1\n4\n### score_2\n2",
            "score_1 4\nscore_2 2",
            "Score 1 is 4, score 2 is 2.",
            "**ranking** 2",
            "ranking → 2",
        ),
    ),
    "reward-anything": (
        listwise.OTHER,
        2,
        (
            "### model-1\n4",
            "model-1 is 4, model-2 is 2",
            "model-1 - 4\nmodel-2 - 2",
            "<model-1>4</model-1>",
            "model-1 gets 4",
        ),
    ),
    "r3-pointwise": (
        rated.given("5"),
        1,
        ("### Score\n1", "The score is 1.", "<score>1</score>", "**Score** 1", "Score (1)"),
    ),
    "r3-pairwise": (
        rated.ONE,
        2,
        ("### Score\nResponse 2", "The score is Response 2.", "score → Response 2", "Score Response 2"),
    ),
    "r3-binary": (rated.given("true"), 1, ("### Score\nfalse", "The score is false.", "**Score** false", "score - no")),
    "rubric-object": (
        '{"score": 5}',
        1,
        ("### Score\n1", "The score is 1.", "<score>1</score>", "Score\n\n**1/5**", "score - one"),
    ),
    "rubric-checks": (
        '{"polite": true, "right": true}',
        1,
        ("### Polite\nfalse", "right is false.", "polite - no", "<right>no<"),
    ),
    "rubric-duel": ('{"score_1": 4, "score_2": 4, "winner": "A"}', 2, ("### winner\nB", "The winner is B", "score_1 is 2")),
}


def test_an_object_that_is_quoted_isnt_read_beside_another_verdict_in_words() -> None:
    for name in QUOTED_OBJECTS:
        quote, shown, spellings = QUOTED_OBJECTS[name]
        assert isinstance(outcome(JUDGES[name], said(quote), shown), Verdict)
        for words in spellings:
            for text in (f"It plants {quote} in it.\n{words}\n", f"{words}\nIt plants {quote}\n"):
                assert isinstance(outcome(JUDGES[name], said(text), shown), Reason), text


@pytest.mark.parametrize(
    "words", ["### Score\n4\n", "The score is 4.", "The highest score is 5.", "A score of 5 needs more.", "score - 4"]
)
def test_an_object_is_read_beside_the_same_verdict_in_words(words: str) -> None:
    assert outcome(JUDGES["rubric-object"], said(f'{words}\n{{"score": 4}}'), 1) == Verdict(({"score": 4.0},))
