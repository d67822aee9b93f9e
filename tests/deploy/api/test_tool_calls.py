"""Messages with tool calls, and tools, in requests."""

from typing import Any

import pytest

from tests.support.endpoints import application, post, rewards, scorer

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
QUESTION = {"role": "user", "content": "What is 3 + 4?"}


def calling(arguments: object, **more: object) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


CALL = calling('{"a": 3, "b": 4}')
ANSWERED = [QUESTION, CALL, {"role": "tool", "tool_call_id": "c1", "content": "7"}, {"role": "assistant", "content": "7"}]


@pytest.fixture(scope="module")
def app() -> Any:
    return application([scorer("tiny-tools")])


def reward(app: Any, **conversation: object) -> float:
    (value,) = rewards(post(app, "/v1/rewards", {"conversations": [conversation]}))
    return value


def test_routes_show_calls_and_tools(app: Any) -> None:
    plain, with_tools = reward(app, messages=ANSWERED), reward(app, messages=ANSWERED, tools=[TOOL])
    assert plain != with_tools
    chat = post(app, "/v1/chat/completions", {"messages": ANSWERED, "tools": [TOOL], "tool_choice": "auto"}).json()
    assert chat["reward"] == with_tools
    pooled = post(app, "/pooling", {"messages": ANSWERED}).json()
    assert pooled["data"][0]["data"] == [pytest.approx(plain)]


def test_candidates_may_be_calls(app: Any) -> None:
    body = {"messages": [QUESTION], "responses": [CALL, "7", calling({"a": 3, "b": 4}), calling({"a": 3, "b": 5})]}
    first, text, same, other = rewards(post(app, "/v1/rewards", {"conversations": [body]}))
    assert first == same == reward(app, messages=[QUESTION, CALL])
    assert len({first, text, other}) == 3


def test_a_comparison_shows_the_tools(app: Any) -> None:
    answer = {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "7"}]}]}
    body = {"conversation_history": ANSWERED[:-1], "response_objs": [answer]}
    for tools in ({}, {"tools": [TOOL]}):
        assert post(app, "/compare", {**body, **tools}).json()["rewards"] == [reward(app, messages=ANSWERED, **tools)]
    assert post(app, "/compare", {**body, "tools": [{"type": "web_search"}]}).json()["reasons"] == ["tool_call"]


def test_a_comparison_judges_what_follows_the_calls_of_a_response(app: Any) -> None:
    call, message = CALL["tool_calls"][0], {"role": "assistant", "content": "7"}
    function = {"type": "function_call", "call_id": call["id"], **call["function"]}
    output = {"type": "function_call_output", "call_id": call["id"], "output": "7"}
    turns = [QUESTION, CALL, {"role": "tool", "tool_call_id": call["id"], "content": "7"}, message]
    for items, messages in (([function], turns[:2]), ([function, output, message], turns)):
        body = {"conversation_history": [QUESTION], "response_objs": [{"output": items}], "tools": [TOOL]}
        rewarded = post(app, "/compare", body).json()["rewards"]
        assert rewarded == [reward(app, messages=messages, tools=[TOOL])]


@pytest.mark.parametrize(
    "conversation",
    [
        {"messages": [QUESTION, calling("x")]},
        {"messages": [QUESTION, calling(None)]},
        {"messages": ANSWERED, "tools": [{"type": "web_search"}]},
        {"messages": [QUESTION], "responses": [calling("[]")]},
        {"messages": [QUESTION, CALL, {"role": "tool", "tool_call_id": "c2", "content": "7"}, ANSWERED[-1]]},
    ],
)
def test_what_cannot_be_read_has_its_reason(app: Any, conversation: dict[str, Any]) -> None:
    (response,) = post(app, "/v1/rewards", {"conversations": [conversation]}).json()["data"][0]["responses"]
    assert (response["reward"], response["reason"]) == (None, "tool_call")


def test_a_model_that_is_shown_no_calls_refuses_them() -> None:
    answer = post(application([scorer("tiny-scalar")]), "/v1/rewards", {"conversations": [{"messages": ANSWERED}]})
    (response,) = answer.json()["data"][0]["responses"]
    assert (response["reward"], response["reason"]) == (None, "tool_call")
