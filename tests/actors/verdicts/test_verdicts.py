"""What is read in what judges write: the number that they gave, or none, whatever it is that they wrote."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from actors.contracts.judge import Judge, Verdict
from actors.engine.protocol import Generation
from actors.errors import Unreadable
from actors.records import Reason
from actors.reward_model import families
from actors.settings.replica import JudgeSettings, ReadSettings
from actors.settings.rubric import RubricSettings
from actors.text.reasoning import MARKS, Mark
from actors.verdicts.verdict_token import difference
from tests.dialects import answer_tag, boxed, final_judgement, json_grades, listwise, rated, rubric_readers
from tests.dialects.final_judgement import MARK, NO, YES, generate
from tests.support.examples import examples
from tests.support.forms import forms

Case = tuple[str, str, int, Verdict | Reason]


def answered_with(text: str) -> Generation:
    return Generation(text, (), "stop", (), 0, 1)


def judge(name: str) -> Judge:
    family = families()[name]
    assert isinstance(family, Judge)
    return family


def rating(how: str) -> Judge:
    family = judge("r3").reading_by(ReadSettings.model_validate({"rating": how}))
    assert isinstance(family, Judge)
    return family


def rubric(name: str) -> Judge:
    settings = RubricSettings.model_validate(dict(rubric_readers.RUBRICS[name]))
    return judge("rubric").with_settings(JudgeSettings(rubric=settings))


def outcome(judge: Judge, generation: Generation, shown: int) -> Verdict | Reason:
    try:
        return judge.verdict(generation, shown)
    except Unreadable as unreadable:
        return unreadable.reason


JUDGES: Mapping[str, Judge] = {
    "genrm-boxed": judge("genrm-boxed"),
    "genrm-json": judge("genrm-json"),
    "rm-r1": judge("rm-r1"),
    "rm-r1-instruct": judge("rm-r1-instruct"),
    "reward-anything": judge("reward-anything"),
    **{f"r3-{how}": rating(how) for how in rated.CASES},
    **{f"rubric-{name}": rubric(name) for name in rubric_readers.CASES},
}
CASES: Mapping[str, Sequence[Case]] = {
    "genrm-boxed": boxed.CASES,
    "genrm-json": json_grades.CASES,
    "rm-r1": answer_tag.CASES,
    "rm-r1-instruct": answer_tag.CASES,
    "reward-anything": listwise.CASES,
    **{f"r3-{how}": cases for how, cases in rated.CASES.items()},
    **{f"rubric-{name}": cases for name, cases in rubric_readers.CASES.items()},
}
ALL = [(name, case) for name, cases in CASES.items() for case in cases]
GOOD = [(name, text, shown, read) for name, (_, text, shown, read) in ALL if isinstance(read, Verdict)]


def test_what_is_read_is_what_was_given_or_nothing() -> None:
    for name in JUDGES:
        expected = {what: verdict for what, _, _, verdict in CASES[name]}
        assert len(expected) == len(CASES[name]), "two cases have the same name"
        assert {what: outcome(JUDGES[name], answered_with(text), shown) for what, text, shown, _ in CASES[name]} == expected


REASONED = [(name, case) for name, case in ALL if case[1].startswith("<think>")]


def test_reasoning_between_any_marks_is_read_alike() -> None:
    """Each text that begins with `<think>` is read alike with any other family's marks."""
    table: list[Mark] = [mark for mark in MARKS if not mark.paired]
    for mark in table:
        expected = {f"{name}: {case[0]}": case[3] for name, case in REASONED}
        readings = {}
        for name, (what, text, shown, _) in REASONED:
            other = re.sub("</think>", mark.end, text.replace("<think>", mark.begin), flags=re.IGNORECASE)
            readings[f"{name}: {what}"] = outcome(JUDGES[name], answered_with(other), shown)
        assert {what: reading for what, reading in readings.items() if reading != expected[what]} == {}


def test_reasoning_between_words_ends_at_them() -> None:
    a, b = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"
    for text in (f"Here is my thought process: {a} Here is my response: no.", f"analysis {a} assistantfinal no"):
        assert outcome(JUDGES["rm-r1"], answered_with(text), 2) is Reason.NO_VERDICT
    assert outcome(JUDGES["rm-r1"], answered_with(f"analysis{a}assistantfinal{b}"), 2) is Reason.TWO_VERDICTS
    assert isinstance(outcome(JUDGES["rm-r1"], answered_with(f"analysis of them.assistantfinal{b}"), 2), Verdict)
    assert isinstance(outcome(JUDGES["rm-r1"], answered_with(f"analysis of both: {a}"), 2), Verdict)


# A verdict that is one token.


def by_principle() -> Judge:
    return judge("genrm-principle").with_settings(JudgeSettings(), (YES, NO))


def by_a_users_token() -> Judge:
    item = RubricSettings.model_validate({"prompt": "{{ response }}", "verdict": {"after": "".join(MARK)}})
    return judge("rubric").with_settings(JudgeSettings(rubric=item), (YES, NO))


def test_a_verdict_is_read_at_its_token_or_nowhere() -> None:
    judges: list[Judge] = [by_principle(), by_a_users_token()]
    for judge in judges:
        for case in final_judgement.CASES:
            read = outcome(judge, case.generation, 1)
            if isinstance(case.expected, Reason):
                assert read == case.expected
            else:
                assert isinstance(read, Verdict)
                assert list(read.scores[0].values()) == [case.expected]


def digits() -> Judge:
    """Whose answers are part of other numbers."""
    item = {"prompt": "{{ response }}", "verdict": {"after": "Score:", "positive": "1", "negative": "0"}}
    return judge("rubric").with_settings(JudgeSettings(rubric=RubricSettings.model_validate(item)), (1001, 1002))


@pytest.mark.parametrize(("word", "last"), [(" 10", 1002), (" 0.1", 1001), (" -1", 1001), ("01", 1001), (" 11", 1001)])
def test_the_end_of_a_longer_word_is_no_verdict(word: str, last: int) -> None:
    there = {1001: -0.5, 1002: -1.5}
    generation = Generation(f"Score:{word}", (7, 8, last, 9), "stop", (there,) * 4, 0, 1)
    assert outcome(digits(), generation, 1) == Reason.NO_VERDICT


def test_a_word_that_is_one_of_the_answers_is_a_verdict() -> None:
    there = {1001: -0.5, 1002: -1.75}
    assert outcome(digits(), Generation("Score: 1", (7, 8, 1001, 9), "stop", (there,) * 4, 0, 1), 1) == Verdict(
        ({"score": 1.25},)
    )


LOGPROBS = st.floats(-200, 0) | st.just(-math.inf)
WORDS = st.lists(st.sampled_from((" Yes", " No", *MARK, "\n", " well", ".", "<end>", "</think>")), max_size=12)


@given(WORDS, LOGPROBS, LOGPROBS)
def test_swapping_yes_and_no_negates(before: list[str], yes: float, no: float) -> None:
    tokens = (*before, *MARK, " Yes", "<end>")
    generation = generate(tokens, {-2: (yes, no)})
    result = difference(generation, "".join(MARK), (" Yes", " No"), (YES, NO))
    assert result == -difference(generation, "".join(MARK), (" No", " Yes"), (NO, YES))
    assert result == max(yes, -50) - max(no, -50)
    assert -50 <= result <= 50


@pytest.mark.parametrize("after", [(), ("\n",), ("\n", "\n")])
def test_no_other_position_says_the_same(after: tuple[str, ...]) -> None:
    generation = generate(("Hm", *MARK, " Yes", *after, "<end>"), {})
    numbers = [logprob[YES] - logprob[NO] for logprob in generation.logprobs]
    assert len(set(numbers)) == len(numbers), "so that a neighbour's would show"
    assert difference(generation, "".join(MARK), (" Yes", " No"), (YES, NO)) == numbers[5]


@given(WORDS)
def test_a_text_in_tokens_has_a_finite_verdict_or_none(tokens: list[str]) -> None:
    read = outcome(by_principle(), generate(tuple(tokens), {}), 1)
    if isinstance(read, Verdict):
        text = "".join(tokens).replace("<end>", "").rstrip()
        assert text.endswith(("Final Judgement: Yes", "Final Judgement: No"))
        places = [index for index, token in enumerate(tokens) if token in (" Yes", " No")]
        assert read.scores[0]["difference"] == 2 + places[-1] * (1 / 2 - 1 / 8)


# Any text whatsoever.

FRAGMENTS = (
    *(boxed.GRADES, boxed.GRADES_END, boxed.RANKING, boxed.RANKING_END, boxed.grades("4, 2"), boxed.ranking("2")),
    *("\x00", "\ud800", "\u2028", "\r\n"),
    *(
        ", ",
        ": ",
        " ",
        '"score": ',
        '"score_1": ',
        '"score_2": ',
        '"ranking": ',
        '"overall": ',
        '"scores": ',
        '"best-to-worst": ',
        '"model-1": ',
        '"model-2": ',
        "Grade: ",
        "1: ",
        " 2: ",
        '"winner": ',
        "| ",
        "# ",
    ),
    *forms(r"""
<think>¦</think>¦<answer>¦</answer>¦[[A]]¦[[B]]¦[[C]]¦A¦B¦\boxed{¦\text{¦{¦}¦[¦]¦1¦2¦3¦4¦5¦6¦0¦-1¦4.5¦10¦1e0¦٤¦４¦NaN
Infinity¦null¦true¦false¦True¦,¦:¦'¦"¦\¦\n¦⏎¦```json⏎¦```¦~~~¦#¦//¦...¦-¦+¦_¦/¦"score"¦'score'¦"explanation": "¦score:
["model-2", "model-1"]¦"Response 1"¦"Response 2"¦Grade:¦facts=¦ style=¦"polite": true¦"right": false¦"winner": "A"
Response 1¦é¦评分¦المجموع¦**¦{"score_1": 4, "score_2": 2, "ranking": 2}¦{'score_1': 1, 'score_2': 5, 'ranking': 6}
{"score": 4}¦{'score': 5}¦{"scores": {"model-1": 4, "model-2": 2}¦{"score": "Response 1"}¦{'score': True}
{"score_1": 4, "score_2": 2"""),
)
TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(FRAGMENTS) | st.characters(), max_size=30).map("".join)
BENT = st.tuples(
    st.sampled_from(GOOD),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(FRAGMENTS)), max_size=3),
)
"""A good answer, and where to put something in place of so many of its characters."""


def bent(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    for index, length, fragment in changes:
        index %= len(text) + 1
        text = text[:index] + fragment + text[index + length :]
    return text


LITERAL = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def literals(answer: str) -> set[float]:
    """The numbers that stand in a text, each of them whole."""
    return {float(piece) for piece in LITERAL.findall(answer)}


def numbers(verdict: Verdict, name: str) -> Iterator[float]:
    for scores in verdict.scores:
        if name in scores:
            yield scores[name]


def account(name: str, verdict: Verdict, text: str, shown: int) -> None:
    """Assert that a verdict is whole, on the scale, and stands in the text where it belongs."""
    answer = text.rpartition("</think>")[2]
    there = literals(answer)
    assert len(verdict.scores) == shown
    assert len(verdict.merits) == (shown if shown > 1 else 0)
    assert all(math.isfinite(value) for scores in verdict.scores for value in scores.values())
    assert all(map(math.isfinite, verdict.merits))
    assert all(set(scores) == set(JUDGES[name].text_outputs()) for scores in verdict.scores) or (name, shown) == (
        "genrm-boxed",
        1,
    )
    low, high = (0, 10) if name in ("rubric-named", "rubric-whole") else (1, 5)
    for output in ("score", "facts", "style"):
        for score in numbers(verdict, output):
            if name == "r3-binary":
                assert score in (0, 1)
                assert ("true" if score else "false") in answer.lower()
            else:
                assert low <= score <= high
                assert score in there
    for margin in numbers(verdict, "margin"):
        assert abs(margin) <= 2.5
    if (margins := list(numbers(verdict, "margin"))) and shown == 2:
        assert margins == [margins[0], -margins[0]] == list(verdict.merits)
        assert 3.5 - margins[0] in there
    if ranks := list(numbers(verdict, "rank")):
        assert ranks == [1 + sum(merit > item for merit in verdict.merits) for item in verdict.merits or (0,)]
    for won in numbers(verdict, "win"):
        assert won in (0, 0.5, 1)
    for check in ("polite", "right"):
        for passed in numbers(verdict, check):
            assert ("true" if passed else "false") in answer.lower()


SHOWN = {name: sorted({case[2] for case in cases}) for name, cases in CASES.items()}


@pytest.mark.parametrize("name", JUDGES)
@given(text=TEXTS)
@examples(60)
def test_any_text_has_a_verdict_that_stands_in_it_or_none(name: str, text: str) -> None:
    for shown in SHOWN[name]:
        read = outcome(JUDGES[name], answered_with(text), shown)
        if isinstance(read, Verdict):
            account(name, read, text, shown)


@given(BENT)
@examples(400)
def test_a_good_text_that_is_bent_has_a_verdict_that_stands_in_it_or_none(
    of: tuple[tuple[str, str, int, Verdict], list[tuple[int, int, str]]],
) -> None:
    (name, good, shown, _), changes = of
    text = bent(good, changes)
    read = outcome(JUDGES[name], answered_with(text), shown)
    if isinstance(read, Verdict):
        account(name, read, text, shown)


def test_every_beginning_of_a_text_has_a_verdict_that_stands_in_it_or_none() -> None:
    for name in JUDGES:
        for _, text, shown, _ in CASES[name]:
            for end in range(min(len(text), 400)):
                read = outcome(JUDGES[name], answered_with(text[:end]), shown)
                if isinstance(read, Verdict):
                    account(name, read, text[:end], shown)


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "stuck", ["{", '{"', "{'", "{\n", '{"a":', "{a:", '{"a', boxed.GRADES, "<answer>", "<think>", "</think>"]
)
def test_a_text_that_goes_round_in_circles_is_read_in_no_time(stuck: str) -> None:
    for name, judge in JUDGES.items():
        assert isinstance(outcome(judge, answered_with(stuck * 5000), SHOWN[name][-1]), Reason)


@given(st.sampled_from(GOOD), TEXTS)
@examples(300)
def test_what_was_thought_before_changes_nothing(good: tuple[str, str, int, Verdict], thought: str) -> None:
    name, text, shown, read = good
    assume(not text.lower().lstrip().startswith("<thought"))  # behind the judge's mark another one is text
    assert outcome(JUDGES[name], answered_with(f"<think>{thought}</think>{text}"), shown) == read


@given(st.sampled_from(GOOD), TEXTS)
@example(("rubric-named", "facts=7 style=3.5 ", 1, Verdict(({"facts": 7.0, "style": 3.5},), ())), "")
def test_what_is_only_thought_is_no_verdict(good: tuple[str, str, int, Verdict], after: str) -> None:
    assume("</think>" not in after)
    name, text, shown, _ = good
    answer = text.rpartition("</think>")[2]
    assert outcome(JUDGES[name], answered_with(f"<think>{answer}"), shown) == Reason.NO_VERDICT
    assert outcome(JUDGES[name], answered_with(f"{answer}</think>"), shown) == Reason.NO_VERDICT
    assert outcome(JUDGES[name], answered_with(f"<think>{after}</think><think>{answer}"), shown) == Reason.NO_VERDICT


# The other order.


def swapped(verdict: Verdict) -> Verdict:
    return Verdict(verdict.scores[::-1], verdict.merits[::-1])


GRADES = st.integers(4, 20).map(lambda quarters: quarters / 4)
RANKINGS = st.integers(4, 24).map(lambda quarters: quarters / 4)


@given(GRADES, GRADES, RANKINGS)
def test_in_the_other_order_grades_swap_and_margins_change_sign(grade: float, other: float, ranking: float) -> None:
    written: Mapping[str, Callable[[float, float, float], str]] = {
        "genrm-boxed": lambda first, second, rank: boxed.both(f"{first}, {second}", f"{rank}"),
        "genrm-json": lambda first, second, rank: json_grades.grades(f"{first}", f"{second}", f"{rank}"),
    }
    for name, write in written.items():
        there = JUDGES[name].verdict(answered_with(write(grade, other, ranking)), 2)
        back = JUDGES[name].verdict(answered_with(write(other, grade, 7 - ranking)), 2)
        assert there == swapped(back)
        assert [scores["score"] for scores in there.scores] == [grade, other]
        assert there.merits == tuple(-merit for merit in back.merits)
        assert list(numbers(there, "margin")) == [-margin for margin in numbers(back, "margin")]


@pytest.mark.parametrize(
    ("name", "answer", "other"),
    [
        ("rm-r1", answer_tag.A, answer_tag.B),
        ("r3-pairwise", rated.ONE, rated.TWO),
        ("rubric-winner", "[[A]]", "[[B]]"),
        ("rubric-winner", "[[C]]", "[[C]]"),
        ("rubric-sides", "1: 4.5 2: 2", "1: 2 2: 4.5"),
        (
            "rubric-duel",
            '{"score_1": 4, "score_2": 2, "winner": "A"}',
            '{"score_1": 2, "score_2": 4, "winner": "B"}',
        ),
    ],
)
def test_in_the_other_order_the_other_wins(name: str, answer: str, other: str) -> None:
    assert JUDGES[name].verdict(answered_with(answer), 2) == swapped(JUDGES[name].verdict(answered_with(other), 2))


@given(st.lists(GRADES, min_size=2, max_size=6), st.randoms(use_true_random=False), st.booleans())
def test_in_another_order_of_a_list_each_keeps_its_grade_and_rank(grades: list[float], random: Any, ranked: bool) -> None:
    count = len(grades)
    best = sorted(range(count), key=lambda at: random.random())
    places = sorted(range(count), key=lambda at: random.random())
    """Where each is shown the second time."""

    def read(shown_at: Sequence[int]) -> Verdict:
        scores = ", ".join(f'"model-{place + 1}": {grade}' for place, grade in zip(shown_at, grades, strict=True))
        order = ", ".join(f'"model-{shown_at[position] + 1}"' for position in best)
        text = f'{{"scores": {{{scores}}}' + (f', "best-to-worst": [{order}]}}' if ranked else "}")
        return JUDGES["reward-anything"].verdict(answered_with(text), count)

    there, back = read(range(count)), read(places)
    assert [scores["score"] for scores in there.scores] == grades
    for index, place in enumerate(places):
        assert there.scores[index] == back.scores[place]
        assert there.merits[index] == back.merits[place]
    if ranked:
        assert [int(there.scores[position]["rank"]) for position in best] == list(range(1, count + 1))
