"""Trajectories: which turns of their agents are judged, under which names, and in which context.

Each agent has a conversation, and is judged in that alone: what a sub-agent did is no turn of the agent that called it,
which sees its result. A turn that isn't known, or whose context isn't, is rejected with the reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from actors.errors import Rejected
from actors.records import Reason, Role
from pipelines.data.formats.calls import tools_of
from pipelines.data.formats.content import role_of
from pipelines.data.formats.rows import ONLY_RESPONSE, Row, RowRequests, Unjudgeable
from pipelines.data.formats.turns import turns_at
from pipelines.data.formats.values import describe, is_blank


class AgentTurn(NamedTuple):
    """A turn as a message in OpenAI's form, or `Rejected` where the file doesn't have it.

    `name` is that of a response that the agent made here; None for others' turns, and for those that are context alone.
    """

    turn: object
    name: str | None = None


class Agent(NamedTuple):
    """An agent's conversation, and its tools as the file has them. `prefix` stands before the names of its turns."""

    turns: Sequence[AgentTurn]
    tools: object = None
    prefix: str = ""


Read = Callable[[Row], RowRequests]


def readers(agents: Callable[[Row], Sequence[Agent]]) -> tuple[Read, Read]:
    """`read`, of each agent's last turn, and `read_turns`, of all, for a `Shape`. The first agent has the row's tools.

    A row's `system` is no prompt of its agents', whose formats have a place for theirs: in Gym it is a field of the task.
    """

    def read(is_last: bool, row: Row) -> RowRequests:
        all_agents = agents(row)
        # A reward is looked up by its name: with two turns of one name, one of them would get the other's.
        ids = (name for agent in all_agents for name in (agent.prefix, *(turn.name for turn in agent.turns)) if name)
        if repeated := [name for name, count in Counter(ids).items() if count > 1]:
            raise Rejected(Reason.WRONG_TYPE, f"two agents or turns with the same ids: {repeated[0][:80]!a}")
        parts = [_judge(agent, is_last, {} if position else row) for position, agent in enumerate(all_agents)]
        return RowRequests(
            tuple(name for part in parts for name in part.names),
            tuple(request for part in parts for request in part.requests),
            tuple(response for part in parts for response in part.rejected),
        )

    return partial(read, True), partial(read, False)


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects of an optional list.

    Raises `Rejected` as `wrong_type` for anything else: what is passed over might be a part of a context.
    """
    if is_blank(value):
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Rejected(Reason.WRONG_TYPE, f"{describe(value)} where a list of objects is expected")
    return value


def _judge(agent: Agent, is_last: bool, row: Row) -> RowRequests:
    # What follows the last turn, such as the outputs of its calls, isn't needed, and may be missing.
    named = [(turn.name, place) for place, turn in enumerate(agent.turns) if turn.name is not None]
    if not named:
        name = f"{agent.prefix}{ONLY_RESPONSE}"
        reason = Reason.NO_FINAL_ASSISTANT if agent.turns else Reason.NO_MESSAGES
        return RowRequests((name,), (), (Unjudgeable(name, reason, "an agent that made no turn here"),))
    turns = list(_check_calls([turn for turn, _ in agent.turns]))
    row_requests = turns_at(turns, dict(named[-1:] if is_last else named), ())
    try:
        tools = tools_of({"tools": agent.tools}) or tools_of(row)
    except Rejected as error:
        return row_requests.refused(error.reason, error.detail)
    return replace(row_requests, requests=tuple(replace(request, tools=tools) for request in row_requests.requests))


def _check_calls(turns: Sequence[Any]) -> Iterator[object]:
    """The turns; `Rejected` for an output that no call waits for, and for a turn before all calls have their outputs."""
    # Stricter than in a conversation, where an output without an id answers the next call: trajectories run calls at once,
    # and hold outputs that no call asked for, so such an output may be any call's or none's.
    waiting: list[object] = []
    for turn in turns:
        fault, role = None, role_of(turn)
        if role is Role.TOOL:
            if (call_id := turn.get("tool_call_id")) in waiting:
                waiting.remove(call_id)
            elif waiting or call_id is not None:
                fault = Rejected(Reason.TOOL_CALL, f"an output of the call {call_id!a}, which waits for none")
        elif waiting and not isinstance(turn, Rejected):
            fault = Rejected(Reason.CONTEXT_GAP, f"the call {waiting[0]!a} has no output before the next turn")
        elif role is Role.ASSISTANT:
            waiting = [call.get("id") for call in turn.get("tool_calls") or () if isinstance(call, dict)]
        yield fault or turn
