"""Rows with tool calls: what they are read as, and what is refused."""

import json
from typing import Any

import pytest

from actors.records import Message, Reason, Role, ScoreRequest, ToolCall
from actors.text.tool_calls import as_messages
from pipelines.data.formats import PROMPT_SHAPES, SHAPES, RowRequests, requests
from pipelines.data.formats.calls import count_calls_without_tools, read_tool
from pipelines.data.formats.registry import Turns
from tests.support.parsed_rows import chat, judged, refused, reply, user

FUNCTION = {"name": "weather", "description": "Now.", "parameters": {"type": "object"}}
WEATHER = {"type": "function", "function": FUNCTION}
PARIS = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":  "Paris"}'}}
ROW = chat(
    user("q"),
    reply(None, tool_calls=[PARIS]),
    {"role": "tool", "tool_call_id": "call_1", "content": ""},
    reply("Rain."),
)


def read(row: dict[str, Any], turns: Turns = "final", shape: str = "messages") -> RowRequests:
    return requests(SHAPES[shape], row, turns)


def only(row: dict[str, Any], shape: str = "messages") -> ScoreRequest:
    (request,) = read(row, shape=shape).requests
    return request


def test_calls_answers_and_tools_are_read() -> None:
    request = only(ROW | {"tools": [WEATHER]})
    call = ToolCall("weather", '{"city": "Paris"}', "call_1")
    turns = (Message(Role.ASSISTANT, "", (call,)), Message(Role.TOOL, "", call_id="call_1"))
    assert request.context == (Message(Role.USER, "q"), *turns)
    assert request.tools == (json.dumps(WEATHER),)
    assert request.prompt_hash not in (only(ROW).prompt_hash, only(ROW | {"tools": [WEATHER, WEATHER]}).prompt_hash)


@pytest.mark.parametrize(
    "turn",
    [
        reply(None, tool_calls=json.dumps([PARIS])),
        reply(None, tool_calls=[json.dumps(PARIS)]),
        reply("", tool_calls=[{"name": "weather", "arguments": {"city": "Paris", "day": None}}]),
        reply(None, function_call=PARIS["function"]),
        reply(None, function_calls=json.dumps(PARIS["function"])),
        {"from": "function_call", "value": json.dumps({"name": "weather", "arguments": {"city": "Paris"}})},
        {"role": "tool_call", "content": json.dumps([PARIS])},
        reply(
            None, tool_calls=[{"id": " ", "function": {"name": "weather", "arguments": '{"city":"Rome","city":"Paris"}'}}]
        ),
    ],
)
def test_every_form_of_a_call_is_the_same_call(turn: dict[str, object]) -> None:
    request = only(chat(user("q"), turn))
    ((response,), (call,)) = request.responses, request.responses[0].calls
    assert (response.content, call.name, call.arguments) == ("", "weather", '{"city": "Paris"}')
    assert call.id in (None, "call_1")


def test_a_null_in_json_text_is_an_argument() -> None:
    called = json.dumps({"name": "f", "arguments": {"a": None}})
    for turn in ({"from": "gpt", "value": "", "tool_calls": called}, {"from": "function_call", "value": called}):
        assert only(chat(user("q"), turn)).responses[0].calls == (ToolCall("f", '{"a": null}'),)


@pytest.mark.parametrize(
    "beside",
    [
        {"tools": json.dumps([WEATHER])},
        {"tools": [json.dumps(FUNCTION)]},
        {"tools": [{**WEATHER, "strict": None}]},
        {"functions": [FUNCTION]},
        {"input": {"tools": [WEATHER]}},
        {"tools_json": json.dumps([WEATHER])},
        {"available_tools": json.dumps([WEATHER]), "tools": "[]"},
        {"chat_template_kwargs": {"xml_tools": [json.dumps(WEATHER)], "python_tools": []}},
        {"tools": [{"parameters": {"type": "object"}, "strict": True, **FUNCTION, "type": "function"}]},
        {"tools": [{**WEATHER, "function": FUNCTION | {"strict": None}}], "functions": [FUNCTION]},
        {"tools": [WEATHER], "functions": ["weather"]},
    ],
)
def test_every_form_of_a_tool_is_the_same_tool(beside: dict[str, object]) -> None:
    (tool,) = only(ROW | beside).tools
    assert tool == json.dumps(WEATHER)
    assert read_tool({**WEATHER, "strict": None}) == tool


@pytest.mark.parametrize(
    "beside",
    [
        {"tools": "[{'name': 'w'}]"},
        {"tools": '[{"name":"w"'},
        {"tools": ['{"name":"w"']},
        {"tools": {"name": "w"}},
        {"tools": '{"name": "w"}'},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"w": {"description": "d"}}]},
        {"tools": [{"name": "w", "parameters": {"maximum": float("inf")}}]},
        {"tools": [WEATHER], "functions": [{"name": "w"}]},
        {"tools": [WEATHER], "available_tools": [{"name": "w"}]},
        {"chat_template_kwargs": {"xml_tools": ["{'name': 'w'}"]}},
        {"chat_template_kwargs": {"python_tools": ["def w(city: str) -> str"]}},
    ],
)
def test_tools_that_cannot_be_read_are_refused(beside: dict[str, object]) -> None:
    (rejected,) = read(ROW | beside).rejected
    assert rejected.reason is Reason.TOOL_CALL
    assert 10 < len(rejected.detail) < 200


def test_turns_may_be_calls_or_final_answers_alone() -> None:
    calling = chat(user("q"), reply("Let me see.", tool_calls=[PARIS]))
    assert list(judged(read(ROW, "all"))) == ["turn[1]", "turn[3]"]
    assert judged(read(calling)) == {"final": "Let me see."}
    assert refused(read(calling, "final-answer")) == {"final": Reason.NO_FINAL_ASSISTANT}
    assert judged(read(ROW, "final-answer")) == {"final": "Rain."}


def test_sides_of_a_pair_are_calls() -> None:
    other = {**PARIS, "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    row = {
        "prompt": [user("q")],
        "chosen": [reply(None, tool_calls=[PARIS])],
        "rejected": [reply(None, tool_calls=[other])],
    }
    (request,) = read(row, shape="preference").requests
    assert [response.calls[0].arguments for response in request.responses] == ['{"city": "Paris"}', '{"city": "Rome"}']


def call(arguments: object, **more: object) -> dict[str, object]:
    return reply(None, tool_calls=[{"function": {"name": "f", "arguments": arguments}} | more])


@pytest.mark.parametrize(
    "turn",
    [
        call(None),
        call(""),
        call("city=Paris"),
        call("[1]"),
        call('"{}"'),
        call('{"a":' * 2000 + "1" + "}" * 2000),
        call(json.dumps({"a": "x" * 2**20})),
        call({"a": "x" * 2**20}),
        call({"a": b"bytes"}),
        call("{}", id=5),
        call("{}", type="custom"),
        reply(None, tool_calls=[PARIS] * 1000),
        reply(None, tool_calls=["weather(Paris)"]),
        reply(None, tool_calls=[PARIS], function_call=PARIS["function"]),
        reply(None, function_calls="weather(city='Paris')"),
        {"role": "function_call", "content": "<tool_call>"},
        call('{"a": 1e400}'),
        call({"a": float("nan")}),
        user("q") | {"tool_calls": [PARIS]},
        reply("a", tools=[WEATHER]),
        {"role": "system", "content": "s", "tools": [WEATHER]},
        {"role": "system", "content": None, "functions": json.dumps([FUNCTION])},
    ],
)
def test_calls_that_cannot_be_read_whole_are_refused(turn: dict[str, object]) -> None:
    (rejected,) = read(chat(turn, reply("a"))).rejected
    assert rejected.reason is Reason.TOOL_CALL
    assert 10 < len(rejected.detail) < 200


def answered(number: object = "call_1", content: object = "rain", **more: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": number, "content": content, **more}


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([answered("call_2")], Reason.TOOL_CALL),
        ([answered(1)], Reason.TOOL_CALL),
        ([answered(name="time")], Reason.TOOL_CALL),
        ([answered(), answered()], Reason.TOOL_CALL),
        ([answered(), answered(None)], Reason.TOOL_CALL),
        ([answered(), reply("a"), answered()], Reason.TOOL_CALL),
        ([answered(), reply("a"), answered("zzz")], Reason.TOOL_CALL),
        ([answered(content=None)], Reason.MISSING_FIELD),
        ([{"role": "tool", "tool_call_id": "call_1", "output": "rain"}], Reason.MISSING_FIELD),
    ],
)
def test_what_answers_no_call_is_refused(answers: list[dict[str, object]], reason: Reason) -> None:
    row = chat(user("q"), reply(None, tool_calls=[PARIS]), *answers, reply("a"))
    assert refused(read(row)) == {"final": reason}


def numbered(*ids: str | None) -> dict[str, object]:
    """A turn with a call of each id, or of none."""
    return reply(None, tool_calls=[{"id": number, "function": {"name": f"f{number}", "arguments": "{}"}} for number in ids])


@pytest.mark.parametrize(
    ("ids", "answers", "expected"),
    [
        ((None, "2"), ("2", None), ["f2", "fNone"]),
        (("1", None), (None, "1"), ["fNone", "f1"]),
        (("1", "2"), (None, None), ["f1", "f2"]),
        (("1", "2", "3"), ("1", "3", "2"), ["f1", "f3", "f2"]),
    ],
)
def test_answers_belong_to_calls_by_their_ids_and_else_in_order(
    ids: tuple[str | None, ...], answers: tuple[str | None, ...], expected: list[str]
) -> None:
    turns = [user("q"), numbered(*ids), *map(answered, answers), reply("a")]
    pair = {"prompt": turns[:3], "chosen": turns[3:], "rejected": turns[3:]}
    for request in (only(chat(*turns)), only(pair, "preference")):
        assert [message["name"] for message in as_messages(request.context) if message["role"] == "tool"] == expected


def test_turns_of_tools_without_calls_are_read_as_ever() -> None:
    answered = {"role": "tool", "name": "f", "content": "rain"}
    assert only(chat(user("q"), answered, reply("a"))).context[1] == Message(Role.TOOL, "rain")
    assert refused(read(chat(user("q"), answered | {"content": ""}, reply("a")))) == {"final": Reason.EMPTY_CONTENT}


def test_a_policy_is_given_no_prompt_with_tools() -> None:
    for row in (ROW, chat(user("q")) | {"tools": [WEATHER]}):
        assert refused(requests(PROMPT_SHAPES["messages"], row)) == {"candidate": Reason.TOOL_CALL}


def test_rows_that_call_tools_which_they_do_not_have_are_counted() -> None:
    with_tools, calling, talking = read(ROW | {"tools": [WEATHER]}), chat(user("q"), reply(None, tool_calls=[PARIS])), chat()
    rows = [with_tools, read(ROW), read(calling), read(talking), read(chat(user("q"), reply("a")))]
    assert count_calls_without_tools(rows) == 2
