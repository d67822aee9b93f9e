"""Changes keep what a response says, and are left out where they might matter."""

import pytest

from actors.records import Message, Response, Role, ScoreRequest, ToolCall
from pipelines.workflows.certifying.changes import CHANGES, Left, apply

ANSWER = "It is five. Two and three make five, as you can count."
BY_NAME = {change.name: change for change in CHANGES}


def request(*texts: str, prompt: str = "What is 2 + 3?", system: str = "") -> ScoreRequest:
    context = (*([Message(Role.SYSTEM, system)] if system else []), Message(Role.USER, prompt))
    return ScoreRequest(context, tuple(Response(f"{place}", text) for place, text in enumerate(texts)))


@pytest.mark.parametrize("name", [change.name for change in CHANGES if change.write])
def test_a_changed_response_has_all_its_words_and_others_stay(name: str) -> None:
    changed = apply(BY_NAME[name], request("Four.", ANSWER), 1)
    assert isinstance(changed, ScoreRequest)
    assert changed.context == request("").context
    assert changed.responses[0] == Response("0", "Four.")
    text = changed.responses[1].content
    assert text != ANSWER
    assert " ".join(ANSWER.split()) in " ".join(text.split())
    # What is added has no number and makes no claim that a response could be right or wrong by.
    assert not any(letter.isdigit() for letter in text)


def test_padding_makes_a_response_about_twice_as_long() -> None:
    for length in (5, 200, 3000):
        changed = apply(BY_NAME["length"], request("word " * length), 0)
        assert isinstance(changed, ScoreRequest)
        added = len(changed.responses[0].content) - 5 * length
        assert 100 <= added <= 4000
        assert added >= min(0.9 * 5 * length, 3500)


def test_the_order_of_responses_is_reversed() -> None:
    changed = apply(BY_NAME["order"], request("a", "b", "c"), 1)
    assert isinstance(changed, ScoreRequest)
    assert [response.content for response in changed.responses] == ["c", "b", "a"]
    assert apply(BY_NAME["order"], request("a"), 0) is Left.ONE_RESPONSE


def test_a_tag_names_the_language() -> None:
    german = "Das ist eine Antwort auf die Frage, und sie ist nicht besonders lang."
    for text, tag in ((german, "[de] "), ("5", "[und] ")):
        changed = apply(BY_NAME["language_tag"], request(text), 0)
        assert isinstance(changed, ScoreRequest)
        assert changed.responses[0].content == tag + text


@pytest.mark.parametrize(
    "text", ['{"answer": 5}', "```\nx = 5\n```", "| a | b |\n|---|---|", "    return 5", "<p>5</p>", "<think>hm</think>5"]
)
def test_what_isnt_prose_isnt_changed(text: str) -> None:
    for change in CHANGES[1:]:
        assert apply(change, request("It is 4.", text), 1) is Left.NOT_PROSE
        assert isinstance(apply(change, request("It is 4.", text), 0), ScoreRequest)
    calls = (ToolCall("add", '{"a": 2}'),)
    calling = ScoreRequest(request("").context, (Response("0", "I add.", calls),))
    assert apply(BY_NAME["length"], calling, 0) is Left.NOT_PROSE


@pytest.mark.parametrize(
    ("prompt", "system"),
    [
        ("Answer with only a number. 2 + 3?", ""),
        ("Say it in 20 words.", ""),
        ("2 + 3?", "Be concise."),
        ("As JSON, please", ""),
    ],
)
def test_where_a_form_is_asked_for_no_words_are_added(prompt: str, system: str) -> None:
    score_request = request(ANSWER, prompt=prompt, system=system)
    assert {apply(change, score_request, 0) for change in CHANGES if change.write and change.adds} == {Left.FORM_ASKED}
    assert isinstance(apply(BY_NAME["white_space"], score_request, 0), ScoreRequest)


def test_markdown_isnt_made_markdown_again() -> None:
    for text in ("- one\n- two", "# Five", "It is **five**.", "1. one\n2. two"):
        assert apply(BY_NAME["markdown"], request(text), 0) is Left.UNCHANGED
