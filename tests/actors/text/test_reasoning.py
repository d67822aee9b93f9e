"""Reasoning is told from an answer by where it stands, and an answer is judged as if there had been none."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.records import Message, Reason, Reasoning, Response, Role, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import resolve_model
from actors.settings.replica import ModelSettings, RenderSettings
from actors.text.reasoning import (
    MARKS,
    Mark,
    SplitText,
    count_reasoning,
    cut_at_marks,
    final_answer,
    is_in_marks,
    is_only_marks,
    mark_in,
    opened_by,
    possible_answers,
    split_reasoning,
    with_reasoning,
    without_reasoning,
)
from tests.support.models import SCALAR, assistant, request, user

HELD = [
    ("<think>hm</think>yes", "yes"),
    ("\n <think>\nhm\n</think>\n\nyes\n", "yes\n"),
    ("<think></think>\n\n    indented", "    indented"),
    ("<think>a</think><think>b</think> yes", "yes"),
    ("<think>hm</think>\n\nThe tag `</think>` ends it.", "The tag `</think>` ends it."),
    ("<think>hm</think>\n\nUse <think> and </think> so.", "Use <think> and </think> so."),
    ("hm\n</think>\n\nyes", "yes"),
    ("hm, `</think>` would end it.\n</think>\nyes", "yes"),
    ("So 7 it is.</think>yes", "yes"),
    ("So 7 it is. </think> yes", "yes"),
    ("</think>yes", "yes"),
    ("[THINK]hm[/THINK]yes", "yes"),
    ("<reasoning>hm</reasoning>\nyes", "yes"),
    ("<thought>hm</thought>\nyes", "yes"),
    ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>", "yes"),
    ("<|start|>assistant<|channel|>analysis<|message|>hm<|end|><|channel|>final<|message|>yes", "yes"),
    ("<longcat_think>hm</longcat_think>\nyes", "yes"),
    ("hm.\n</longcat_think>\nyes", "yes"),
    ("<|inner_prefix|>hm<|inner_suffix|>yes", "yes"),
    ("analysisWe think.assistantfinalyes", "yes"),
    ("Here is my thought process: hm Here is my response: yes", "yes"),
    ("<Thought>hmm</Thought>\n<Output>7</Output>", "<Output>7</Output>"),
    ("<THINK>hm</THINK>yes", "yes"),
    ("<Think>hm</think>yes", "yes"),
    ("[Think]hm[/think]yes", "yes"),
    ("İ hm, `</THINK>` would end it.\n</THINK>\nyes", "yes"),
    ("<Reasoning>İİ</REASONING>\nYES", "YES"),
    ("Analysis We think.AssistantFinalyes", "yes"),
    ("<THINK>hm", None),
    ("<think>hm", None),
    ("<think>hm</think>\n ", None),
    ("<think>the tag `</think>` ends it\n</think>\nyes", None),
    ("[THINK]hm", None),
]
THOUGHT, COMMAND = "<|begin_of_thought|>hm<|end_of_thought|>\n\n", "<|START_THINKING|>hm<|END_THINKING|>"
WRAPPED = [
    (THOUGHT + "<|begin_of_solution|>\n\n yes.\n\n<|end_of_solution|>", " yes."),
    (THOUGHT + "<|begin_of_solution|>yes<|end_of_solution|>\n", "yes"),
    (THOUGHT + "<|begin_of_solution|>\nyes", "yes"),
    (THOUGHT + "yes", "yes"),
    (THOUGHT + "The mark <|begin_of_solution|> begins it.", "The mark <|begin_of_solution|> begins it."),
    (COMMAND + "<|START_RESPONSE|>yes<|END_RESPONSE|>", "yes"),
    (COMMAND + "<|START_RESPONSE|>yes<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "yes"),
    (COMMAND + "<|start_response|>YES<|end_response|>", "YES"),
    (COMMAND + "<|START_RESPONSE|><|END_RESPONSE|>", None),
    (COMMAND + "<|START_RESPONSE|>yes<|END_RESPONSE|>no", None),
]
TEXT = [
    "yes",
    "The tag `<think>` begins it, and `</think>` ends it.",
    "It begins with <think> and ends with </think>, so.",
    "Reasoning models write </think> before they answer.",
    'They end it with "</think>", as you see.',
    "```\nhm\n</think>\n```\nis what it looks like",
    "Look:\n<think>\nhm\n</think>\nlike this",
    "analysis of the problem",
    "Here is my thought process: I like it.",
    "a < b and b > a",
    "The tag `<THINK>` begins it, and `</Think>` ends it.",
    "Analysis of the problem",
    "</thinking> is a tag",
]


def test_reasoning_stands_at_the_beginning_up_to_its_end() -> None:
    for text, answer in HELD:
        assert split_reasoning(text) == SplitText(True, answer)


def test_an_answer_between_marks_of_its_own_is_what_stands_there() -> None:
    for text, answer in WRAPPED:
        assert split_reasoning(text) == SplitText(True, answer)


def test_a_mark_that_is_only_mentioned_is_text() -> None:
    for text in TEXT:
        result = split_reasoning(text)
        assert (result.reasoned, result.answer) == (False, text)


def test_every_mark_is_known() -> None:
    for mark in MARKS:
        result = split_reasoning(f"{mark[0]} hm {mark[1]}yes")
        assert (result.reasoned, result.answer) == (True, "yes")


def test_a_text_is_cut_at_the_marks_of_its_reasoning() -> None:
    for text, answer in HELD:
        pieces = cut_at_marks(text)
        assert "".join(pieces) == text
        if answer is None:
            assert pieces == [text]
        else:
            assert pieces[-1].strip().startswith(answer.strip())
            assert {piece.lower() for piece in pieces[1::2]} <= {
                end.lower() for mark in MARKS for end in (mark.begin, mark.end)
            }
            assert len(pieces) > 1


@pytest.mark.parametrize(
    "text", ["<think></think>" * 100_000, "<think>" * 200_000, "`</think>` " * 100_000, "a </think> " * 100_000, " " * 2**20]
)
def test_looking_for_it_is_linear_in_the_text(text: str) -> None:
    assert split_reasoning(text) is not None  # would else take minutes
    assert "".join(cut_at_marks(text)) == text


def test_turns_before_a_response_are_treated_as_it_is() -> None:
    thought = assistant("<think>hm</think>7")
    score_request = ScoreRequest(
        (user("3+4?"), thought, user("sure?")), (Response("final", "yes"), Response("b", "<think>no"))
    )
    assert without_reasoning(score_request, Reasoning.REJECT).refused == {0, 1}
    assert without_reasoning(score_request, Reasoning.KEEP).request == score_request
    stripped = without_reasoning(score_request, Reasoning.STRIP)
    assert stripped.request.context[1] == assistant("7")
    assert [set(stripped.reasoned), set(stripped.refused)] == [{0, 1}, {1}]
    open_ended = ScoreRequest((user("3+4?"), assistant("<think>hm"), user("sure?")), (Response("final", "yes"),))
    assert without_reasoning(open_ended, Reasoning.STRIP).refused == {0}


def test_what_the_user_writes_is_no_reasoning_of_the_assistants() -> None:
    score_request = ScoreRequest((user("<think>hm</think>?"),), (Response("final", "yes"),))
    assert without_reasoning(score_request, Reasoning.STRIP).reasoned == set()


def test_reasoning_in_a_field_of_its_own_is_reasoning_too() -> None:
    whole = with_reasoning("yes", {"reasoning_content": "hm"})
    assert split_reasoning(whole).answer == "yes"
    assert with_reasoning("yes", {"reasoning_content": " ", "reasoning": None}) == "yes"
    assert with_reasoning("<think>hm</think>yes", {"reasoning": "hm"}) == "<think>hm</think>yes"


def test_marks_are_known_in_any_case_wherever_they_are_looked_for() -> None:
    all_dress: list[Callable[[str], str]] = [str.upper, str.lower, str.title, str.swapcase]
    for dress in all_dress:
        for mark in MARKS:
            begin, end = dress(mark.begin), dress(mark.end)
            text = f"{begin} Hm {end}YES"
            assert split_reasoning(text) == SplitText(True, "YES")
            assert final_answer(text) == possible_answers(text)[-1] == "YES"
            assert cut_at_marks(text) == ["", begin, " Hm ", end, "YES"]
            assert count_reasoning([request(user("3+4?"), to=text)]) == 1
            assert with_reasoning(text, {"reasoning": "hm"}) == text
            assert is_in_marks(begin)
            if not mark.paired:
                assert opened_by(f"Judge it.\n{begin}\n").endswith(begin)
                assert mark_in(f"{{{{ messages }}}} {end}") is not None
                assert possible_answers(text) == ["YES"]
                assert possible_answers(f"{begin} YES") == []


def test_what_a_template_writes_where_an_answer_begins_is_only_marks() -> None:
    for text in ("<think>\n", "<THINK>\n\n</Think>\n\n", "</think>", "<|start|>assistant<|channel|>analysis", " "):
        assert is_only_marks(text)
    for text in ("<think>\nhm", "a </think>", "analysis"):
        assert not is_only_marks(text)


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_character_moves_where_marks_are_looked_for(thought: str, answer: str) -> None:
    assert "".join(cut_at_marks(f"<THINK>{thought}</THINK>{answer}")) == f"<THINK>{thought}</THINK>{answer}"
    assert possible_answers(f"<THINK>{thought}</THINK>.{answer}") == [f".{answer}"]


def test_every_character_keeps_its_place() -> None:
    characters = "".join(map(chr, range(0x110000)))
    assert possible_answers(f"<THINK>{characters}</THINK>.") == ["."]


def test_a_begin_mark_in_the_middle_of_a_judges_answer_is_text() -> None:
    marks: list[Mark] = [mark for mark in MARKS if not mark.paired]
    for mark in marks:
        for text in (f"It writes {mark.begin} first. 4", f'{{"why": "{mark.begin}"}}', f"4\n{mark.begin}"):
            assert possible_answers(text) == [text]
            assert possible_answers(f"{mark.begin}Hm.{mark.end}{text}") == [text]
        assert possible_answers(f"{mark.begin}Hm.{mark.end}\n {mark.begin}4") == []


def test_a_judge_has_one_mark_and_where_it_may_end_twice_two_answers() -> None:
    cases: list[tuple[str, list[str]]] = [
        ("Hm.</think>4", ["Hm.</think>4", "4"]),
        ("Hm.\n</Think>\n4</think>5", ["Hm.\n</Think>\n4</think>5", "5"]),
        ("<think>Hm.</think>4</think>5", ["4</think>5", "5"]),
        ("[THINK]Hm.[/THINK]4</think>5[/THINK]", ["4</think>5[/THINK]", ""]),
        ("It writes </think> before 4", ["It writes </think> before 4"]),
        ("<think>Hm.</think>It writes '</think>' before 4", ["It writes '</think>' before 4"]),
        ("Hm.</thinking>4[/THINK]5", ["Hm.</thinking>4[/THINK]5"]),
        ("Hm.</think><think>4", []),
        ("Analysis: 4.assistantfinal5", ["Analysis: 4.assistantfinal5", "5"]),
        ("Analysis: 4", ["Analysis: 4"]),
    ]
    for text, answers in cases:
        assert possible_answers(text) == answers


def test_a_template_tells_that_its_model_reasons() -> None:
    assert mark_in("{{ messages }}{% if x %}<think>\n{% endif %}") == "<think>"
    assert mark_in("{{ messages }} an analysis") is None


def rendering(reasoning: Reasoning | None, model: str = SCALAR, **more: str) -> Renderer:
    settings = RenderSettings(reasoning=reasoning)
    return Renderer(resolve_model(ModelSettings(model=model, **more), settings), settings)


def test_what_is_rendered_is_the_answer_alone_or_all_of_it() -> None:
    thought, plain = request(user("3+4?"), to="<think>hm</think>\n\n7"), request(user("3+4?"), to="7")
    (wanted,) = rendering(None).render([plain])
    for reasoning in (None, Reasoning.REJECT):
        (result,) = rendering(reasoning).render([thought])
        assert (result.responses[0].reason, result.responses[0].reasoned, result.prompts) == (Reason.REASONING, True, ())
    stripped, kept = (rendering(how).render([thought])[0] for how in (Reasoning.STRIP, Reasoning.KEEP))
    assert stripped.prompts == wanted.prompts
    assert stripped.prompt_hash == kept.prompt_hash == wanted.prompt_hash
    assert stripped.responses[0].reasoned
    assert len(kept.prompts[0].ids) > len(wanted.prompts[0].ids)


def test_a_request_may_say_it_itself() -> None:
    score_request = ScoreRequest((user("3+4?"),), (Response("final", "<think>hm</think>7"),), reasoning=Reasoning.STRIP)
    (result,) = rendering(None).render([score_request])
    assert result.responses[0].reason is None


def test_a_judge_whose_authors_strip_it_does_without_being_told() -> None:
    score_request = ScoreRequest(
        (Message(Role.USER, "What is 3 + 4?"),),
        (Response("a", "<think>hm</think>7"), Response("b", "<think>hm"), Response("c", "9")),
    )
    (result,) = rendering(None, "tiny-genrm").render([score_request])
    assert [response.reason for response in result.responses] == [None, Reason.REASONING, None]
    assert {judge for prompt in result.prompts for judge in prompt.response_positions} == {0, 2}
