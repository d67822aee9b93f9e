"""Rows with tool calls: what they are read as, and what is refused."""

import json
from typing import Any

import pytest

from actors.records import Message, Reason, Role, ScoreRequest, ToolCall
from pipelines.data.formats import PROMPT_SHAPES, SHAPES, RowRequests, requests
from pipelines.data.formats.registry import Turns
from tests.support.asked import chat, judged, refused, said, user

WEATHER = {"type": "function", "function": {"name": "weather", "description": "Now.", "parameters": {"type": "object"}}}
PARIS = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":  "Paris"}'}}
ROW = chat(
    user("q"), said(None, tool_calls=[PARIS]), {"role": "tool", "tool_call_id": "call_1", "content": ""}, said("Rain.")
)


def read(row: dict[str, Any], turns: Turns = "final", shape: str = "messages") -> RowRequests:
    return requests(SHAPES[shape], row, turns)


def only(row: dict[str, Any], shape: str = "messages") -> ScoreRequest:
    (request,) = read(row, shape=shape).requests
    return request


def test_calls_answers_and_tools_are_read() -> None:
    request = only(ROW | {"tools": [WEATHER]})
    call = ToolCall("weather", '{"city":  "Paris"}', "call_1")
    turns = (Message(Role.ASSISTANT, "", (call,)), Message(Role.TOOL, "", call_id="call_1"))
    assert request.context == (Message(Role.USER, "q"), *turns)
    assert request.tools == (json.dumps(WEATHER),)
    assert request.prompt_hash not in (only(ROW).prompt_hash, only(ROW | {"tools": [WEATHER, WEATHER]}).prompt_hash)


@pytest.mark.parametrize(
    "turn",
    [
        said(None, tool_calls=json.dumps([PARIS])),
        said("", tool_calls=[{"name": "weather", "arguments": {"city": "Paris", "day": None}}]),
        said(None, function_call=PARIS["function"]),
        said(None, function_calls=json.dumps(PARIS["function"])),
        {"from": "function_call", "value": json.dumps({"name": "weather", "arguments": {"city": "Paris"}})},
        {"role": "tool_call", "content": json.dumps([PARIS])},
    ],
)
def test_every_form_of_a_call_is_the_same_call(turn: dict[str, object]) -> None:
    request = only(chat(user("q"), turn))
    ((response,), (call,)) = request.responses, request.responses[0].calls
    assert (response.content, call.name, json.loads(call.arguments)) == ("", "weather", {"city": "Paris"})


@pytest.mark.parametrize(
    "beside",
    [
        {"tools": json.dumps([WEATHER])},
        {"tools": [json.dumps(WEATHER["function"])]},
        {"tools": [{**WEATHER, "strict": None}]},
        {"functions": [WEATHER["function"]]},
        {"input": {"tools": [WEATHER]}},
    ],
)
def test_every_form_of_a_tool_is_the_same_tool(beside: dict[str, object]) -> None:
    (tool,) = only(ROW | beside).tools
    assert json.loads(tool) == WEATHER


def test_turns_may_be_calls_or_final_answers_alone() -> None:
    calling = chat(user("q"), said("Let me see.", tool_calls=[PARIS]))
    assert list(judged(read(ROW, "all"))) == ["turn[1]", "turn[3]"]
    assert judged(read(calling)) == {"final": "Let me see."}
    assert refused(read(calling, "final-answer")) == {"final": Reason.NO_FINAL_ASSISTANT}
    assert judged(read(ROW, "final-answer")) == {"final": "Rain."}


def test_sides_of_a_pair_are_calls() -> None:
    other = {**PARIS, "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    row = {"prompt": [user("q")], "chosen": [said(None, tool_calls=[PARIS])], "rejected": [said(None, tool_calls=[other])]}
    (request,) = read(row, shape="preference").requests
    assert [response.calls[0].arguments for response in request.responses] == ['{"city":  "Paris"}', '{"city": "Rome"}']


def call(arguments: object, **more: object) -> dict[str, object]:
    return said(None, tool_calls=[{"function": {"name": "f", "arguments": arguments}} | more])


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
        said(None, tool_calls=[PARIS] * 1000),
        said(None, tool_calls=[PARIS], function_call=PARIS["function"]),
        said(None, function_calls='weather(city="Paris")'),
        {"role": "function_call", "content": "<tool_call>"},
    ],
)
def test_calls_that_cannot_be_read_whole_are_refused(turn: dict[str, object]) -> None:
    (rejected,) = read(chat(user("q"), turn)).rejected
    assert rejected.reason is Reason.TOOL_CALL
    assert 10 < len(rejected.detail) < 200


def test_an_answer_to_another_call_is_refused() -> None:
    for beside in ({"tool_call_id": "call_2"}, {"name": "time"}):
        answer = {"role": "tool", "content": "rain", **beside}
        assert refused(read(chat(user("q"), said(None, tool_calls=[PARIS]), answer, said("a")))) == {
            "final": Reason.TOOL_CALL
        }


def test_turns_of_tools_without_calls_are_read_as_ever() -> None:
    answered = {"role": "tool", "tool_call_id": "x", "name": "f", "content": "rain"}
    assert only(chat(user("q"), answered, said("a"))).context[1] == Message(Role.TOOL, "rain")
    assert refused(read(chat(user("q"), answered | {"content": ""}, said("a")))) == {"final": Reason.EMPTY_CONTENT}


def test_a_policy_is_given_no_prompt_with_tools() -> None:
    for row in (ROW, chat(user("q")) | {"tools": [WEATHER]}):
        assert refused(requests(PROMPT_SHAPES["messages"], row)) == {"candidate": Reason.TOOL_CALL}
