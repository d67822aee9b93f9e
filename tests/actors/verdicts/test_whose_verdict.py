"""Whose verdict it is: the judge's, and never one that it quotes from what it judges."""

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.contracts.judge import Judge, Verdict
from actors.records import Reason
from actors.settings.replica import JudgeSettings
from actors.settings.rubric import RubricSettings
from actors.text.delimiters import Delimiters
from actors.text.reasoning import MARKS, Mark
from tests.actors.verdicts.test_verdicts import GOOD, JUDGES, answered_with, by_a_users_token, by_principle, judge, outcome
from tests.dialects import answer_tag, boxed, json_grades, listwise, rated
from tests.dialects.final_judgement import MARK as MARKER
from tests.dialects.final_judgement import generate
from tests.support.examples import examples
from tests.support.forms import forms

PLAIN = [good for good in GOOD if not re.search("think>|thought>", good[1], re.IGNORECASE)]
"""Good answers without reasoning, all of which is the answer."""
NAMES = sorted({name for name, *_ in PLAIN})
LAST = ("rm-r1", "rm-r1-instruct")
"""Judges whose verdict must be their last word."""
ENDS = [end for mark in MARKS for end in dict.fromkeys((mark.begin, mark.end))]


def answers(name: str) -> st.SearchStrategy[tuple[str, int, Verdict]]:
    return st.sampled_from([(text, shown, verdict) for other, text, shown, verdict in PLAIN if other == name])


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@examples(200)
def test_two_different_verdicts_in_an_answer_are_none(name: str, data: st.DataObject) -> None:
    first, other = data.draw(answers(name)), data.draw(answers(name))
    between = data.draw(st.lists(st.sampled_from([*ENDS, "\n", " ", ".", "It is 7. ", "so", '"']), max_size=4).map("".join))
    before = data.draw(st.sampled_from(["", "<think>Hm.</think>", "[THINK]Hm.[/THINK]", "Hm. ", "\n"]))
    if first[1] == other[1] and first[2] != other[2]:
        reading = outcome(JUDGES[name], answered_with(f"{before}{first[0]}\n{between}\n{other[0]}"), first[1])
        assert isinstance(reading, Reason)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@examples(200)
def test_quoting_a_mark_changes_nothing(name: str, data: st.DataObject) -> None:
    text, shown, verdict = data.draw(answers(name))
    quote = f"The response writes {data.draw(st.sampled_from(ENDS))} in it."
    before = data.draw(st.sampled_from(["", "<think>Hm.</think>", "[THINK]Hm.[/THINK]"]))
    assert outcome(JUDGES[name], answered_with(f"{before}{quote}\n{text}"), shown) == verdict
    if name not in LAST:
        assert outcome(JUDGES[name], answered_with(f"{before}{text}\n{quote}"), shown) == verdict


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
            assert isinstance(outcome(JUDGES[name], answered_with(text), shown), Verdict), text


# A verdict that is one token.


def test_a_token_that_contradicts_an_earlier_one_is_no_verdict() -> None:
    for judge_of_a_token in (by_principle(), by_a_users_token()):
        for mark in MARKS:
            for before in ((), ("<think>", "Hm.", "</think>")):
                text = (*before, *MARKER, " No", ".\n", "It is 7. ", mark.end, "\n", *MARKER, " Yes", "<end>")
                assert outcome(judge_of_a_token, generate(text, {}), 1) is Reason.TWO_VERDICTS
                quote = (*before, "It says ", mark.end, " here.\n", *MARKER, " Yes", "<end>")
                assert isinstance(outcome(judge_of_a_token, generate(quote, {}), 1), Verdict)


# What is certain: where reasoning begins, and where it ends.


def test_reasoning_ends_at_its_own_mark_alone() -> None:
    marks: list[Mark] = [mark for mark in MARKS if not mark.paired]
    for mark in marks:
        a, b = answer_tag.A, answer_tag.B
        other = next(other for other in MARKS if other.end != mark.end)
        assert (
            outcome(JUDGES["rm-r1"], answered_with(f"{mark.begin}So {a}. {other.end}\n{mark.end}{b}"), 2)
            == answer_tag.SECOND
        )
        assert outcome(JUDGES["rm-r1"], answered_with(f"{mark.begin}So {other.end} {a}"), 2) is Reason.NO_VERDICT
        assert (
            outcome(JUDGES["rm-r1"], answered_with(f"{mark.begin}'{mark.end}{a}'. So:{mark.end}{b}"), 2)
            is Reason.TWO_VERDICTS
        )
        assert (
            outcome(JUDGES["rm-r1"], answered_with(f"{mark.begin}'{mark.end}{a}'.\n{mark.end}Neither."), 2)
            is Reason.NO_VERDICT
        )


def test_an_ordinary_word_at_the_beginning_hides_no_verdict() -> None:
    a, b = answer_tag.A, answer_tag.B
    for text in (f"Analysis: {a} It wrote assistantfinal {b}", f"Here is my thought process: {a} Here is my response: {b}"):
        assert outcome(JUDGES["rm-r1"], answered_with(text), 2) is Reason.TWO_VERDICTS


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


# A verdict in the form that was asked for, and another one in any form.


def by_pattern(pattern: str, **settings: object) -> Judge:
    rubric = {"prompt": "{{ response }}", "pattern": pattern, "low": 1, "high": 10} | settings
    return judge("rubric").with_settings(JudgeSettings(rubric=RubricSettings.model_validate(rubric)))


NUMBERS = forms(r"""**Score**: 1¦*Score:* 1¦__Score__: 1¦Score : 1¦score = 1¦SCORE: 1¦### Score⏎1
## Score⏎⏎**1**¦Score:⏎1¦`Score`: `1`¦~~Score~~: 1¦Score：1¦<b>Score</b>: 1¦Score - 1¦Score → 1¦Score -> 1
[Score]: 1¦Score = 1/10¦Score: 01¦'Score': '1'¦Ｓｃｏｒｅ: 1¦The score is 1.¦1. **Score** = 1¦Score (1-10) = 1
Score: one¦Score&nbsp;= 1¦Score: [[ 1 ]]¦<score> 1 </score>¦\textbf{Score}: 1¦<h2>Score</h2>⏎1¦Score := 1
Score: ①¦My own score: 1¦Ѕcore: 1¦Sсоre: 1¦Score: I¦Score: Ⅰ¦★☆☆☆☆¦⭐¦Rating: ★¦1 star¦Rating: 1 star
I give it 1 star.¦I give it a score of 1.¦A score of 1.¦It deserves a score of 1 because it is wrong.
It gets a score of 1¦It is a 1.¦My actual score is 1.¦It deserves a 1.¦Rating: 1¦Grade: 1¦Overall: 1
Final verdict: 1¦Rated 1.¦1¦**1**¦[1]¦(1)¦- 1¦1/5¦1/5 overall¦I would rate it 1 out of 5.
I'd give this response 1/5.¦Score: 1 point¦1 out of 5 stars¦The score should be 1.¦1️⃣¦| Score |⏎|---|⏎| 1 |
| Aspect | Score |⏎|---|---|⏎| Overall | 1 |¦| Score | 1 |""")
WINNERS = forms(r"""**Winner**: B¦*Winner:* B¦winner: B¦WINNER = B¦### Winner⏎B¦Winner: b¦Winner is B.
Winner: Response B¦Winner - B¦Winner: [[B]]¦<winner>B</winner>¦Winner: B, as it is right¦Winner: assistant B
Winner: В¦Winner: 2¦Winner: two¦"winner": "B"¦[[b]]¦[ [B] ]¦\[\[B\]\]¦【【B】】¦[[ В ]]¦[[Response B]]¦\boxed{B}
**B**¦[[2]]¦B is better than A.¦Response 2 is better than Response 1.¦The second response is better.
B is the winner.¦The clear winner is B.¦Response 2 is clearly the better one.¦A is worse than B.
Response A loses.¦B > A¦A < B¦Response B wins.¦Response 2 > Response 1¦1. Response B⏎2. Response A
I prefer Response B.¦So I choose B.¦My pick: B¦Verdict: B¦The better response is B.¦Better: Response 2
**Response B:**⏎It is right.¦Response A:⏎It is short.⏎Response B:⏎It is right.⏎Response B:⏎It wins.
Response A:⏎It is short.⏎Response B¦Response B⏎Response A⏎It is short.¦Response A:⏎Short.⏎[[Response B]]:⏎Right.
A is not as good as B.¦B should be preferred.¦I lean towards B.¦Ranking: B, A¦(B)¦It is a tie.
Both are equally good.¦| Winner | B |¦| Winner |⏎|---|⏎| B |""")
GRADES = forms(r"""Response 1: 1, Response 2: 5¦- Response 1: 1⏎- Response 2: 5¦1, 5¦[1, 5]¦- 1⏎- 5¦1⏎5
Response 1 gets a score of 1.¦Scores: 1, 5¦Scores: 1 and 5¦Response 1 - 1⏎Response 2 - 5¦**Response 1**: 1/5
Assistant A: 1, Assistant B: 5¦The first response deserves 1.¦Response 1's score: 1¦Response 1: I
Response 1: ★⏎Response 2: ★★★★★¦1) 1⏎2) 5¦A: 1, B: 5¦[A]: 1⏎[B]: 5¦1/5, 5/5
I give 1 to Response 1 and 5 to Response 2.¦1/5 for Response 1.¦Response 2 is better than Response 1.
Response 2 > Response 1¦| Response | Score |⏎|---|---|⏎| 1 | 1 |⏎| 2 | 5 |
| | Response 1 | Response 2 |⏎|---|---|---|⏎| Score | 1 | 5 |""")
OBJECTS = forms(r"""score_1: 1¦**score_2**: 5¦{score_1: 1, score_2: 5}¦{"Score 1": 1}¦{"result": {"score_1": 1}}
Score 1 is 1.¦score_1 1⏎score_2 5¦| score_1 | 1 |⏎|---|---|⏎| score_2 | 5 |
| score_1 | score_2 |⏎|---|---|⏎| 1 | 5 |""")
RANKINGS = forms("**ranking** 6¦ranking → 6¦[1, 5, 6]¦- 1⏎- 5⏎- 6¦### Ranking Score⏎6¦<ranking_score>6</ranking_score>")
BOXES = forms(r"""**Individual Scores:** \boxed{1, 5}¦### Individual Scores⏎1, 5¦Individual scores: 1 and 5.
(The Begin of Individual Scores)⏎\boxed{1, 5}⏎(The End of Individual Scores)
[the begin of ranking score]⏎\boxed{6}¦[ The Begin of  Ranking⏎Score]⏎\boxed{6}
**The Begin of Ranking Score**⏎\boxed{6}¦【The Begin of Ranking Score】\boxed{6}
[**The Begin of Ranking Score**]⏎\boxed{6}¦[The Beginning of Ranking Score]⏎\boxed{6}
[the_Begin of Ranking Score]⏎\boxed{6}""")
TAGS = forms(r"""<answer>B</answer>¦<answer>[B]</answer>¦<answer>[[b]]</answer>¦<ANSWER>[[B]]</ANSWER>
<answer>**B**</answer>¦<answer>Chatbot B</answer>¦<answer>[[ B ]]</answer>¦< answer >[[B]]</ answer >
<answer>neither</answer>¦<answer>[[tie]]</answer>¦<answer></answer>¦<answer id="1">[[B]]</answer>
<answer>[[Ｂ]]</answer>¦<answer>[[B]]<\answer>¦<answer>\boxed{B}</answer>¦<answer>B
&lt;answer&gt;[[B]]&lt;/answer&gt;¦<verdict>[[B]]</verdict>¦<final_answer>B</final_answer>¦**Answer**: [[B]]
### Answer: Chatbot B""")
TRUTHS = forms("""It is false.¦It is not true.¦false¦**False**¦No.¦Verdict: false¦Answer: false¦Score: fаlse
### Score⏎false¦| Score |⏎|---|⏎| false |""")
FACTS = forms("Facts of 1¦**Facts** = 1¦### Facts⏎1¦facts is 1¦fаcts: 1¦Facts: I")
CHECKS = forms(
    "### Polite⏎false¦right is false.¦polite - no¦<right>no<¦rіght: false¦| polite | right |⏎|---|---|⏎| true | false |"
)

PAIR: dict[str, object] = {"shows": "two", "prompt": "{{ response_1 }} {{ response_2 }}"}
SIDES = PAIR | {"winners": {"A": "first", "B": "second", "tie": "tie"}}
QUOTED: Sequence[tuple[Judge, int, str, Sequence[str]]] = (
    (JUDGES["genrm-boxed"], 2, boxed.both("5, 2", "1"), [*GRADES, *BOXES, *RANKINGS]),
    (JUDGES["genrm-json"], 2, json_grades.grades("5", "2", "1"), [*GRADES, *OBJECTS, *RANKINGS]),
    (JUDGES["reward-anything"], 2, listwise.pair("5", "2"), [form.replace("Response ", "model-") for form in GRADES]),
    (JUDGES["rm-r1"], 2, answer_tag.A, [*WINNERS, *TAGS]),
    (JUDGES["rm-r1-instruct"], 2, answer_tag.A, WINNERS),
    (
        JUDGES["r3-pairwise"],
        2,
        rated.ONE,
        [*WINNERS, "### Score\nResponse 2", "The score is Response 2.", "score → Response 2"],
    ),
    (JUDGES["r3-pointwise"], 1, rated.grade_json("5"), NUMBERS),
    (JUDGES["r3-binary"], 1, rated.grade_json("true"), TRUTHS),
    (JUDGES["rubric-whole"], 1, "Grade: 5", NUMBERS),
    (JUDGES["rubric-anything"], 1, "Grade: 5", NUMBERS),
    (JUDGES["rubric-object"], 1, '{"score": 5}', [*NUMBERS, "{score: 1}", '{"verdict": {"score": 1}}', '{"Score": 1}']),
    (JUDGES["rubric-named"], 1, "facts=7 style=3.5 ", [*FACTS, "1, 1", "| facts | style |\n|---|---|\n| 1 | 1 |"]),
    (JUDGES["rubric-checks"], 1, '{"polite": true, "right": true}', CHECKS),
    (JUDGES["rubric-sides"], 2, "1: 5 2: 2", [*GRADES, "1 - 1, 2 - 5", "1 = 1, 2 = 5", "1. 1\n2. 5"]),
    (JUDGES["rubric-duel"], 2, '{"score_1": 4, "score_2": 2, "winner": "A"}', [*WINNERS, *GRADES, *OBJECTS]),
    (by_pattern("Scores: (?P<score_1>[0-9]+), (?P<score_2>[0-9]+)", **PAIR), 2, "Scores: 5, 2", GRADES),
    (by_pattern(r"(?m)^Score: (\d+)$"), 1, "Score: 5", NUMBERS),
    (by_pattern(r"(?s).*Score: (\d+)"), 1, "Score: 5", NUMBERS),
    (by_pattern(r".*?Score:\D*?(\d+)"), 1, "Score: 5", [form for form in NUMBERS if "Score:" not in form]),
    (by_pattern(r"\*\*Score:\*\* (\d+)"), 1, "**Score:** 5", NUMBERS),
    (by_pattern(r"<score>(\d+)</score>"), 1, "<score>5</score>", NUMBERS),
    (by_pattern(r"\[\[(\d+)\]\]"), 1, "[[5]]", NUMBERS),
    (by_pattern(r"\\boxed\{(\d+)\}"), 1, r"\boxed{5}", NUMBERS),
    (by_pattern(r"\[RESULT\] (\d+)"), 1, "[RESULT] 5", [*NUMBERS, "**RESULT**: 1", "[RESULT]: 1", "# [RESULT]\n1"]),
    (by_pattern(r"(\d+)/10"), 1, "5/10", [*NUMBERS, "1 / 10", "**1/10**", "`1`/10"]),
    (by_pattern(r"(\d+) points"), 1, "5 points", [*NUMBERS, "1 Points", "**1** points", "1  points."]),
    (by_pattern(r"facts=(\d)"), 1, "facts=5", [*NUMBERS, *FACTS]),
    (by_pattern("Winner: (?P<winner>A|B|tie)", **SIDES), 2, "Winner: A", WINNERS),
    (by_pattern(r"\[\[(?P<winner>A|B|tie)\]\]", **SIDES), 2, "[[A]]", WINNERS),
    (by_pattern("(?m)^(?P<winner>A|B|tie) is better", **SIDES), 2, "A is better", WINNERS),
    (by_pattern(r"\[\[(?P<winner>[12])\]\]", **PAIR, winners={"1": "first", "2": "second"}), 2, "[[1]]", WINNERS),
)
"""A judge, how many responses it is shown, its verdict in the form that was asked for, and all forms of another one."""
CLEAR = {
    1: forms("""The test score is 90.¦A score of 9 would need more.¦The movie's rating was 8.
It recommends a 5-star hotel.¦The answer is 7.¦It has 2 errors.¦Style score: 3
On a scale of 1 to 10, this is short.¦The response gives 7.¦Accuracy: 3¦The exam grade was 2.
Out of 5 points 3 are right.¦The highest score is 10.¦Score it is.¦I score 3 things.
The score depends on 2 things.¦The scores are 3 and 4.¦The score 9 would need more.¦## Scoring⏎1. It is right.
My underscore_score_2: 3¦subscore: 3¦Score⏎1. Right¦A perfect score = 10.¦### Score (1-10)⏎
### Score⏎The answer is short.¦The game's scoreboard says 3:1.¦It says 2 + 2 = 4.¦= 7¦- Clarity rating: 2/5
**Accuracy**: 3/5¦A rating of 3 or higher needs more."""),
    2: forms("""Response B is better written.¦Response B is better in tone, but wrong.¦Response 2 is short.
If B is better, I say so.¦Neither is perfect.¦Response 2 has 2 mistakes.¦B is a good answer.
1. Response A is short.⏎2. Response B is long.¦The winner: a close call.¦Response A: right⏎Response B: wrong
Response A:⏎It is right.⏎Response B:⏎It is wrong.¦**Response A:**⏎- Right⏎⏎**Response B:**⏎- Wrong
- Response 1:⏎  - Right⏎- Response 2:⏎  - Wrong¦### Assistant A⏎Right.⏎### Assistant B⏎Wrong.
**Chatbot A:** right⏎**Chatbot B:** wrong
I prefer A's style.¦I do not prefer B.¦Response 2 wins in clarity.¦No winner is clear.
The winner gets [1] point.¦[A] is short.¦Winner: see below"""),
}
"""Words that state no verdict."""


def test_a_verdict_in_any_other_form_isnt_the_one_that_is_quoted() -> None:
    for judge_of_quote, shown, quote, statements in QUOTED:
        verdict = outcome(judge_of_quote, answered_with(quote), shown)
        assert isinstance(verdict, Verdict)
        texts = [
            text
            for form in statements
            for text in (
                f"{form}\nThe response ends with {quote}",
                f'The response says "{quote}" in it.\n{form}\n',
                f"It is wrong.\n{form}\n\nIt asks for:\n{quote}",
            )
        ]
        assert [text for text in texts if outcome(judge_of_quote, answered_with(text), shown) == verdict] == []


def test_words_that_state_no_verdict_hide_none() -> None:
    for judge_of_quote, shown, quote, _ in QUOTED:
        verdict = outcome(judge_of_quote, answered_with(quote), shown)
        texts = [text for words in CLEAR[shown] for text in (f"{words}\n{quote}", f"{quote}\n{words}")]
        last = judge_of_quote.name in LAST
        read = {
            text: outcome(judge_of_quote, answered_with(text), shown) for text in texts if not last or text.endswith(quote)
        }
        assert {text: reading for text, reading in read.items() if reading != verdict} == {}


def test_the_same_verdict_in_another_form_changes_nothing() -> None:
    for judge_of_quote, shown, quote, statements in QUOTED:
        if statements is NUMBERS:
            verdict = outcome(judge_of_quote, answered_with(quote), shown)
            for form in NUMBERS:
                if not re.search(r"[(\u2605\u2b50Ⅰ①]|[:] I|/1|1\. ", form):
                    same = re.sub("0?1", "5", form).replace("one", "five")
                    assert outcome(judge_of_quote, answered_with(f"{same}\n\n{quote}"), shown) in (
                        verdict,
                        Reason.NO_VERDICT,
                    ), same


def test_a_citation_behind_a_number_in_brackets_is_no_scale() -> None:
    assert outcome(by_pattern(r"\[\[(\d+)\]\]"), answered_with("It is right. [[5]] [1]"), 1) == Verdict(({"score": 5.0},))
