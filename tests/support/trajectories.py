"""One conversation with a call in each form of agents' trajectories, written after the formats' sources."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.parsed_rows import chat, reply, user

ARGUMENTS = {"city": "Oslo"}
WEATHER = {
    "name": "weather",
    "description": "The weather of a city now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": WEATHER}]
FLAT_TOOLS = [{"parameters": WEATHER["parameters"], "strict": True, **WEATHER, "type": "function"}]
CALLED = {"name": "weather", "arguments": '{"city": "Oslo"}'}
QUESTION, OUTPUT, ANSWER = "How is the weather in Oslo?", "rain, 4 degrees", "It rains, at 4 degrees."
SYSTEM = {"role": "system", "content": "Be brief."}


def call(call_id: object = "call_1", arguments: object = '{"city": "Oslo"}') -> dict[str, Any]:
    return {"type": "function_call", "name": "weather", "arguments": arguments, "call_id": call_id, "id": "fc_1"}


def output(call_id: object = "call_1", text: object = OUTPUT) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def written(text: str = ANSWER) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": parts}


INPUT = [SYSTEM, {"type": "message", **user(QUESTION)}]
ITEMS = [call(), output(), written()]


def invocation(items: list[Any], name: str = "root", parent: str | None = None) -> dict[str, Any]:
    return {
        "kind": "agent_invocation",
        "invocation_id": name,
        "parent_invocation_id": parent,
        "status": "completed",
        "conversation": items,
    }


def record(*invocations: Mapping[str, Any], gaps: tuple[Mapping[str, Any], ...] = (), **more: object) -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "task_id": "7",
        "rollout_id": "7-0",
        "invocations": list(invocations),
        "turns": [],
        "model_calls": [],
        "tool_calls": [],
        "gaps": list(gaps),
        **more,
    }


def rollout(items: list[Any], **more: object) -> dict[str, Any]:
    """A row of Gym's rollout collection."""
    return {
        "responses_create_params": {"input": INPUT, "tools": FLAT_TOOLS, "parallel_tool_calls": True},
        "response": {"id": "resp_1", "object": "response", "output": items, "incomplete_details": None},
        "reward": 1.0,
        "_ng_task_index": 7,
        "_ng_rollout_index": 0,
        **more,
    }


def step(number: int, source: str, message: object, **more: object) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": message, **more}


def atif(*steps: Mapping[str, Any], **more: object) -> dict[str, Any]:
    agent = {"name": "agent", "version": "1", "tool_definitions": TOOLS}
    return {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": agent, "steps": list(steps), **more}


def called(number: int, call_id: object = "call_1", content: object = OUTPUT, **more: object) -> dict[str, Any]:
    """A step with a call and its result."""
    calls = [{"tool_call_id": call_id, "function_name": "weather", "arguments": ARGUMENTS}]
    return step(
        number,
        "agent",
        "",
        tool_calls=calls,
        observation={"results": [{"source_call_id": call_id, "content": content}]},
        **more,
    )


FORMS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "messages": (
        {
            **chat(
                SYSTEM,
                user(QUESTION),
                reply(None, tool_calls=[{"id": "call_1", "type": "function", "function": CALLED}]),
                {"role": "tool", "tool_call_id": "call_1", "content": OUTPUT},
                reply(ANSWER),
            ),
            "tools": TOOLS,
        },
        ("turn[2]", "turn[4]"),
    ),
    "trl": (
        {
            **chat(
                SYSTEM,
                user(QUESTION),
                reply("", tool_calls=[{"id": "call_1", "function": {"name": "weather", "arguments": ARGUMENTS}}]),
                {"role": "tool", "name": "weather", "tool_call_id": "call_1", "content": OUTPUT},
                reply(ANSWER),
            ),
            "tools": json.dumps(TOOLS),
        },
        ("turn[2]", "turn[4]"),
    ),
    "responses": ({"input": INPUT, "output": ITEMS, "tools": FLAT_TOOLS}, ("output[0]", "output[2]")),
    "gym-rollout": (rollout(ITEMS), ("output[0]", "output[2]")),
    "ng_trajectory": (
        rollout(ITEMS, ng_trajectory=record(invocation([*INPUT, *ITEMS]))),
        ("root/conversation[2]", "root/conversation[4]"),
    ),
    "atif": (
        atif(step(1, "system", "Be brief."), step(2, "user", QUESTION), called(3), step(4, "agent", ANSWER)),
        ("step[3]", "step[4]"),
    ),
}
"""The conversation as a row of each form, and the names of its two turns."""
