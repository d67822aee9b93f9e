"""Turns, contents and whole rows in the dialects that people write, and what a judge wouldn't be shown of them."""

from typing import Any

import pytest

from actors.errors import SourceError
from actors.records import Reason
from pipelines.data.formats import SHAPES, detect, requests
from tests.support.parsed_rows import chat, contexts, judged, refused, reply, user

NAN = float("nan")
TEXT_PARTS = [
    [{"type": "text", "text": "7"}],
    [{"type": "input_text", "text": "7"}],
    [{"type": "output_text", "text": "7", "annotations": []}],
    [{"type": "text", "value": "7"}],
    [{"type": "text", "content": "7", "image": None}],
    [{"text": "7"}],
    ["7"],
]


def read(row: dict[str, Any]) -> Any:
    return requests(detect([row]), row)


def test_roles_are_known_by_their_common_names() -> None:
    cases: list[tuple[str, str]] = [("role", "content"), ("from", "value"), ("role", "text")]
    cases_2: list[tuple[str, str]] = [
        ("human", "gpt"),
        ("Human", "GPT"),
        ("USER", "Assistant"),
        ("prompter", "assistant"),
        ("user", "model"),
        ("user", "bot"),
    ]
    for asks, answers in cases_2:
        for role, content in cases:
            for key in ("messages", "conversations", "conversation"):
                request = read({key: [{role: asks, content: "q"}, {role: answers, content: "a"}]})
                assert (contexts(request), judged(request)) == ([[("user", "q")]], {"final": "a"})


def test_text_parts_are_text() -> None:
    for parts in TEXT_PARTS:
        assert judged(read(chat(user(parts), reply(parts)))) == {"final": "7"}
    several = [{"type": "text", "text": "one "}, {"type": "text", "text": ""}, "two"]
    assert judged(read(chat(user("q"), reply(several)))) == {"final": "one two"}
    assert judged(read(chat(user("q"), reply(" as it is \U0001f600\n")))) == {"final": " as it is \U0001f600\n"}


@pytest.mark.parametrize(
    "part",
    [{"type": "image", "image": "x.png"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text"}, 7],
    ids=str,
)
def test_another_part_is_no_text(part: object) -> None:
    assert refused(read(chat(user(["q", part]), reply("a")))) == {"final": Reason.CONTENT_NOT_TEXT}


@pytest.mark.parametrize("blank", ["", " \n", None, []])
def test_a_blank_first_system_turn_is_none(blank: object) -> None:
    row = chat({"role": "system", "content": blank}, user("q"), reply("a"))
    assert contexts(read(row)) == [[("user", "q")]]
    assert judged(requests(SHAPES["messages"], row, "all")) == {"turn[2]": "a"}
    assert contexts(requests(SHAPES["messages"], row | {"system": "s"})) == [[("system", "s"), ("user", "q")]]
    later = chat(user("q"), {"role": "system", "content": blank}, reply("a"))
    assert refused(read(later)) == {"final": Reason.EMPTY_CONTENT}


NULLS = {"content": None, "value": None, "text": None, "system_prompt": None}
SYSTEM = {**NULLS, "role": "system"}


@pytest.mark.parametrize("key", list(NULLS))
def test_a_system_turn_is_read_whichever_key_has_its_text(key: str) -> None:
    row = chat(SYSTEM | {key: "RULES"}, NULLS | {"role": "user", "text": "q"}, NULLS | {"role": "ai", "text": "a"})
    assert (contexts(read(row)), judged(read(row))) == ([[("system", "RULES"), ("user", "q")]], {"final": "a"})


@pytest.mark.parametrize(
    "turn", [{"content": "", "text": "RULES"}, {"content": None, "prompt": "RULES"}, {"rules": "RULES"}]
)
def test_a_system_turn_whose_text_cannot_be_read_does_not_vanish(turn: dict[str, object]) -> None:
    for turns in ("final", "all"):
        parsed = requests(SHAPES["messages"], chat({"role": "system", **turn}, user("q"), reply("a")), turns)
        assert set(refused(parsed).values()) <= {Reason.EMPTY_CONTENT, Reason.MISSING_FIELD}
        assert not judged(parsed)


def test_turns_of_both_forms_have_the_keys_of_the_other_one() -> None:
    no_openai, no_sharegpt = {"role": None, "content": None}, {"from": None, "value": None}
    row = {"conversations": [{"from": "human", "value": "q", **no_openai}, {**no_sharegpt, **reply("a")}]}
    assert (contexts(read(row)), judged(read(row))) == ([[("user", "q")]], {"final": "a"})


def test_what_is_no_text_for_a_user_is_no_system_prompt_of_theirs() -> None:
    row = chat(NULLS | {"role": "user", "system_prompt": "RULES"}, reply("a"))
    assert refused(read(row)) == {"final": Reason.EMPTY_CONTENT}


def test_nan_is_null() -> None:
    for name, row in (
        ("messages", chat(user("q"), reply("a", tool_calls=NAN, reasoning_content=NAN))),
        ("alpaca", {"instruction": "q", "output": "a", "input": NAN, "system": NAN, "history": NAN}),
        ("prompt-response", {"prompt": "q", "response": "a", "messages": NAN, "chosen": NAN, "images": NAN, "tools": NAN}),
    ):
        assert detect([row]).name == name
        assert (contexts(read(row)), judged(read(row))) == ([[("user", "q")]], {"final": "a"})


def test_what_a_judge_would_not_be_shown_rejects_the_row() -> None:
    cases: list[tuple[dict[str, Any], Reason | None]] = [
        ({"images": ["cat.png"]}, Reason.CONTENT_NOT_TEXT),
        ({"images": [{"bytes": b"x", "path": None}]}, Reason.CONTENT_NOT_TEXT),
        ({"videos": ["v.mp4"]}, Reason.CONTENT_NOT_TEXT),
        ({"audios": ["a.wav"]}, Reason.CONTENT_NOT_TEXT),
        ({"tools": [{"type": "web_search", "name": "f"}]}, Reason.TOOL_CALL),
        ({"images": []}, None),
        ({"images": [None]}, None),
        ({"image": "thumbnail.jpg"}, None),
        ({"image": {"bytes": b"x", "path": None}}, Reason.CONTENT_NOT_TEXT),
        ({"image": {"bytes": None, "path": "cat.png"}}, Reason.CONTENT_NOT_TEXT),
        ({"image": {"bytes": None, "path": None}}, None),
        ({"audio": {"array": [0.5], "path": None, "sampling_rate": 16_000}}, Reason.CONTENT_NOT_TEXT),
        ({"tools": "[]"}, None),
        ({"tools": ""}, None),
        ({"tools": "hammer, saw"}, None),
        ({"tools": None, "images": None}, None),
    ]
    for beside, reason in cases:
        for row in (chat(user("q"), reply("a")), {"prompt": "q", "chosen": "a", "rejected": "b"}):
            assert set(refused(read(row | beside)).values()) == ({reason} if reason else set())


def test_a_picture_that_the_text_has_a_place_for_rejects_the_row() -> None:
    row = {
        "image": "cat.png",
        "conversations": [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A cat."}],
    }
    assert refused(read(row)) == {"final": Reason.CONTENT_NOT_TEXT}


@pytest.mark.parametrize("given", ["<noinput>", "<NoInput>", " <noinput> "])
def test_alpacas_mark_for_no_input_is_none(given: str) -> None:
    assert contexts(read({"instruction": "Say hi.", "input": given, "output": "Hi"})) == [[("user", "Say hi.")]]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"messages": str([user("q")])}, "'messages' holds text, \"[{'role'"),
        ({"conversations": {"from": ["human"], "value": ["q"]}}, "'conversations' holds an object with 'from', 'value'"),
        (
            {"messages": [["user", "q"], ["assistant", "a"]]},
            "'messages' holds a list of 2, the first a list of 2, the first text",
        ),
        ({"prompt": b"q", "response": b"a"}, "'prompt' holds bytes, b'q'"),
        ({"prompt": 5, "response": "a"}, "'prompt' holds a number, 5"),
    ],
    ids=str,
)
def test_a_key_with_a_value_of_another_type_is_described(row: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match="no known shape") as refusal:
        detect([row])
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("row", "question"),
    [
        (
            {"id": 1, "message": [user("q"), reply("a")]},
            "Did you mean 'messages' by 'message' (messages: `messages`, a list of",
        ),
        ({"Messages": [user("q"), reply("a")]}, "Did you mean 'messages' by 'Messages' (messages: "),
        ({"promts": "q", "responce": "a"}, "Did you mean 'prompt' by 'promts', 'response' by 'responce' (prompt-response: "),
        ({"prompt": "q", "chosn": "a", "rejected": "b"}, "Did you mean 'chosen' by 'chosn' (preference: "),
    ],
    ids=str,
)
def test_misspelt_keys_are_asked_about(row: dict[str, Any], question: str) -> None:
    with pytest.raises(SourceError, match="no known shape") as refusal:
        detect([row])
    assert question in str(refusal.value)


def test_no_question_is_asked_whose_answer_would_not_help() -> None:
    with pytest.raises(SourceError, match="no known shape") as refusal:
        detect([{"contents": [{"role": "user", "parts": []}], "id": 1}])
    assert "Did you mean" not in str(refusal.value)
