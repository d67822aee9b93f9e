"""Rows of items of OpenAI's Responses: a request's input and its output, or a rollout of NeMo Gym with its trajectory.

A turn of the assistant is all its items in a row: reasoning, messages and calls. It has the position of the last one.
Source of the rollouts: `nemo_gym/rollout_collection.py` and `nemo_gym/rollout_observability.py` (`TrajectoryRecord`).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile

from actors.errors import Rejected
from actors.records import Reason, Role
from actors.text.reasoning import FIELDS
from pipelines.data.formats.agents import Agent, AgentTurn, objects, readers
from pipelines.data.formats.content import entries, field, role_of
from pipelines.data.formats.rows import Row, Shape
from pipelines.data.formats.values import describe, is_blank

_TYPES = ("message", "reasoning", "function_call", "function_call_output")
_TRAJECTORY = "ng_trajectory"
_BREAK = "\n\n"  # between the texts of two items
# Members of a request that stand for turns, and how their ids begin: a row may have fields of its own under these names.
_KEPT_BY_SERVER = {"previous_response_id": "", "conversation": "conv_", "prompt": "pmpt_"}
_SECOND_ROOT = {"code": "parent_invocation_id", "detail": "missing: the request's tools and instructions may be its, too"}
# Gaps, by their codes, that concern no item of a conversation: times, outcomes, who called whom, which model call it was. An
# output that is missing is seen by its call. All other codes, those of later versions among them, refuse the conversation.
_HARMLESS = re.compile(
    r"(?!compaction).*(?:timing|timestamp|outcome|subagent)_.*"
    r"|(?:model_call|model_response|turns|resolution|producer_trajectory_identity|no_sandbox)s?_.*"
    r"|agent_run_timeout|tool_result_missing"
)


def are_items(value: object) -> bool:
    """Whether a value was meant as a list of Responses items, and not of messages, which have no `type`."""
    return isinstance(value, list) and any(isinstance(item, dict) and item.get("type") in _TYPES for item in value)


def _read_items(items: Sequence[object], place: str = "", start: int = 0) -> Iterator[AgentTurn]:
    # The turns of items from a position on, each of the assistant's named by that of its last item.
    for is_assistant, run in groupby(enumerate(items, start), key=lambda pair: _is_assistant(pair[1])):
        positions, members = zip(*run, strict=True)
        if is_assistant:
            yield AgentTurn(_assistant_turn(members), f"{place}[{positions[-1]}]")
        else:
            yield from map(AgentTurn, map(_other_turn, members))


def _is_assistant(item: object) -> bool:
    # Known or not: whatever is neither another's message nor an output, such as a web search, which spoils its turn.
    if not isinstance(item, dict) or item.get("role") is not None or item.get("type") == "message":
        return role_of(item) is Role.ASSISTANT
    return not str(item.get("type")).endswith("_output")


def _assistant_turn(items: Sequence[dict[str, object]]) -> object:
    message: dict[str, object] = {}
    contents, thoughts, calls = list[object](), list[str](), list[object]()
    for item in items:
        match item.get("type") or ("message" if item.get("role") is not None else None):
            case "message":
                message |= {key: value for key, value in item.items() if key not in FIELDS}
                thoughts += [text for key in FIELDS if isinstance(text := item.get(key), str) and text.strip()][:1]
                parts = _parts(item.get("content"))
                # Two messages in a row are one turn: chat templates would write the header of the assistant between them.
                contents += [{"type": "text", "text": _BREAK}, *parts] if contents and parts else parts
                calls += _parts(item.get("tool_calls"))
            case "reasoning":  # a summary stands in for what the server keeps
                thoughts += _texts(item.get("content")) or _texts(item.get("summary"))
            case "function_call":
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                calls.append({"id": item.get("call_id"), "type": "function", "function": function})
            case other:
                return _unknown(other)
    message |= {"role": "assistant", "content": contents or None, "tool_calls": calls or None}
    # A thought may stand in an item of its own and once more in the message.
    return message | {"reasoning_content": _BREAK.join(dict.fromkeys(filter(str.strip, thoughts)))}


def _parts(value: object) -> list[object]:
    return [] if is_blank(value) else value if isinstance(value, list) else [{"type": "text", "text": value}]


def _texts(value: object) -> list[str]:
    texts = (part.get("text") if isinstance(part, dict) else part for part in _parts(value))
    return [text for text in texts if isinstance(text, str)]


def _other_turn(item: object) -> object:
    if not isinstance(item, dict):
        return Rejected(Reason.WRONG_TYPE, f"{describe(item)} where an item is expected")
    if item.get("type") == "function_call_output":
        if item.get("output") is None:
            return Rejected(Reason.CONTEXT_GAP, f"an output of the call {item.get('call_id')!a} without content")
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item["output"]}
    if item.get("role") is not None or item.get("type") == "message":
        return item
    return _unknown(item.get("type"))


def _unknown(kind: object) -> Rejected:
    return Rejected(Reason.WRONG_TYPE, f"an item of type {str(kind)[:40]!a}; known are {', '.join(_TYPES)}")


def _of_request(request: Row, output: object) -> Agent:
    # A request's conversation, of which the turns of the output are judged, as `output[3]`.
    prompt = field(request, "input")
    turns: list[object] = [{"role": "user", "content": prompt}]
    if isinstance(prompt, list):
        turns = [turn for turn, _ in _read_items(prompt)]
    if turns and role_of(turns[-1]) is Role.ASSISTANT:  # the output would go on with a turn that is answered already
        turns.append(Rejected(Reason.WRONG_TYPE, "a conversation that ends with the assistant"))
    opening = _opening(request, turns[:1])
    return Agent([*opening, *map(AgentTurn, turns), *_read_items(entries(output), "output")], request.get("tools"))


def _opening(request: Row, first: Sequence[object]) -> Iterator[AgentTurn]:
    for key, begin in _KEPT_BY_SERVER.items():
        number = value.get("id") if isinstance(value := request.get(key), dict) else value
        if isinstance(number, str) and number and number.startswith(begin):
            yield AgentTurn(Rejected(Reason.CONTEXT_GAP, f"{key} {number[:40]!a}, whose turns aren't in the row"))
    system = {"role": "system", "content": request.get("instructions")}
    # Some rollouts have the instructions as the first turn, too: they were shown once.
    if not is_blank(system["content"]) and [_key(system)] != list(map(_key, first)):
        yield AgentTurn(system)


def _key(item: object) -> object:
    # By this an item is the same in a request and in a conversation, whatever ids and statuses its producer put there.
    keys = ("content", "name", "arguments", "call_id", "output", "summary")
    return isinstance(item, dict) and [role_of(item), *(_texts(item.get(key)) for key in keys)]


def _of_rollout(row: Row) -> Sequence[Agent]:
    """The agents of the trajectory, if it has their conversations; else the one whose response the row has."""
    request, response, observed = (
        value if isinstance(value, dict) else {}
        for value in map(row.get, ("responses_create_params", "response", _TRAJECTORY))
    )
    record = observed if row.get("invocations") is None else row
    if record and record.get("schema_version") != "1.0":
        version = describe(record.get("schema_version"))
        raise Rejected(Reason.WRONG_TYPE, f"a trajectory whose schema_version is {version}; known is '1.0'")
    invocations, gaps = objects(record.get("invocations")), _gaps(record, row)
    if response and not any(invocation.get("conversation") for invocation in invocations):
        return [_of_request(request, response.get("output"))]
    entries(invocations)  # raises without any
    roots = [invocation for invocation in invocations if invocation.get("parent_invocation_id") is None]
    called = [invocation for invocation in invocations if invocation.get("parent_invocation_id") is not None]
    # A request is one agent's, the first root's. A second root may have had the same tools and instructions or others, which
    # the row doesn't say: so it isn't judged where there are any.
    unclear = [] if is_blank(request.get("tools")) and is_blank(request.get("instructions")) else [_SECOND_ROOT]
    return [
        *(_of_invocation(root, record, gaps, request) for root in roots[:1]),
        *(_of_invocation(root, record, [*gaps, *unclear], {}) for root in roots[1:]),
        *(_of_invocation(invocation, record, gaps, {}) for invocation in called),
    ]


def _of_invocation(invocation: Row, record: Row, gaps: Sequence[Row], request: Row) -> Agent:
    """An agent's conversation, all of which is refused if something in it wasn't observed; `request` is the root's.

    Its turns are named `ID/conversation[5]`, but for those that were in the request or in the prompt of its first turn.
    """
    name = invocation.get("invocation_id")
    if not isinstance(name, str):
        raise Rejected(Reason.WRONG_TYPE, f"an invocation whose invocation_id is {describe(name)}")
    # How far the prompt reaches is told by the record or by the request. Either may be missing, and no turn of a prompt is
    # one that this agent made, so the larger count holds.
    prompts = [turn.get("question") for turn in objects(record.get("turns")) if turn.get("invocation_id") == name]
    count_of_prompt = min((len(prompt) for prompt in prompts if isinstance(prompt, list)), default=0)
    items = objects(invocation.get("conversation"))
    pairs = zip(map(_key, _parts(request.get("input"))), map(_key, items), strict=False)
    count_of_prompt = max(count_of_prompt, len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))))
    turns = [
        *_opening(request, items[:1]),
        *(AgentTurn(turn) for turn, _ in _read_items(items[:count_of_prompt])),
        *_read_items(items[count_of_prompt:], f"{name}/conversation", count_of_prompt),
    ]
    reasons = (
        f"{gap.get('code')} {gap.get('detail') or ''}".strip() for gap in gaps if gap.get("invocation_id") in (None, name)
    )
    unobserved = [AgentTurn(Rejected(Reason.CONTEXT_GAP, reason)) for reason in reasons]
    return Agent([*unobserved, *turns], request.get("tools"), f"{name}/")


def _gaps(record: Row, row: Row) -> list[Row]:
    # What of the conversations wasn't observed, or was replaced by a summary in what the model was shown.
    gaps = [gap for gap in objects(record.get("gaps")) if not _HARMLESS.fullmatch(str(gap.get("code")))]
    observed = row.get("ng_agent_observations")
    records = objects(observed.get("records")) if isinstance(observed, dict) else []
    compacted = (item.get("invocation_id") for item in records if item.get("kind") == "context_compaction")
    return [*gaps, *({"code": "context_compaction", "invocation_id": invocation} for invocation in compacted)]


def is_rollout(row: Row) -> bool:
    """A request with its response, or a trajectory record in the row or as the row. Never raises."""
    request, response = row.get("responses_create_params"), row.get("response")
    if isinstance(request, dict) and isinstance(response, dict):
        return isinstance(response.get("output"), list)
    return isinstance(row.get(_TRAJECTORY), dict) or (isinstance(row.get("invocations"), list) and "rollout_id" in row)


SHAPES = (
    Shape(
        "responses",
        "a request of OpenAI's Responses and its output, of which the last turn or all are judged",
        "`input`, text or items, and `output`, a list of items; `instructions` and `tools` are optional",
        lambda row: isinstance(row.get("input"), str | list) and are_items(row.get("output")),
        *readers(lambda row: [_of_request(row, field(row, "output"))]),
        reads=("input", "output", "instructions", "tools"),
        layout="""{"input": str | [item, ...], "output": [item, ...], "instructions"?: str, "tools"?: [tool, ...]}

An item is a message, reasoning, a function_call or a function_call_output. A turn of the assistant is all of its items in a
row, and is named by the position of the last: `output[3]`.""",
    ),
    Shape(
        "gym-rollout",
        "a rollout of NeMo Gym; the last turn or all of each agent are judged",
        "`responses_create_params`, `response` with `output`; or `ng_trajectory`; or `rollout_id` and `invocations`",
        is_rollout,
        *readers(_of_rollout),
        reads=(
            *("responses_create_params", "response", _TRAJECTORY, "ng_agent_observations"),
            *("schema_version", "invocations", "turns", "gaps", "tools"),
        ),
        layout="""{"responses_create_params": request, "response": {"output": [item, ...]}, "ng_trajectory"?: record, ...}
{"schema_version": "1.0", "rollout_id": str, "invocations": [{"invocation_id": str, "conversation": [item, ...]}, ...], ...}

Names: `output[3]`, by the position in the response's output; with a trajectory `ID/conversation[5]`, by the `invocation_id`
and the position in its conversation.""",
    ),
)
