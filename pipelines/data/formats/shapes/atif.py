"""The Agent Trajectory Interchange Format (ATIF) 1.0 to 1.7: a row is a trajectory, with those of its sub-agents inside it.

A step of the agent is a turn and the results of its calls. Source: Harbor's RFC 0001, as NeMo Agent Toolkit implements it
(`nat/atif/trajectory.py`, `step.py`).
"""

import re
from collections.abc import Iterator

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.agents import Agent, AgentTurn, objects, readers
from pipelines.data.formats.content import entries, field
from pipelines.data.formats.rows import Row, Shape
from pipelines.data.formats.values import describe, is_blank

_VERSIONS = re.compile(r"ATIF-v1\.[0-7]")
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def _agents(trajectory: Row, prefix: str = "") -> Iterator[Agent]:
    # Sub-agents' ids stand before the names of their turns: step numbers begin anew in each trajectory.
    version = field(trajectory, "schema_version")
    if not isinstance(version, str) or not _VERSIONS.fullmatch(version):
        raise Rejected(Reason.WRONG_TYPE, f"a schema_version that is {describe(version)}; known are ATIF-v1.0 to ATIF-v1.7")
    agent = trajectory.get("agent")
    steps = objects(entries(field(trajectory, "steps")))
    turns = [turn for step in steps for turn in _turns(step, prefix)]
    yield Agent(turns, agent.get("tool_definitions") if isinstance(agent, dict) else None, prefix)
    for called in objects(trajectory.get("subagent_trajectories")):
        name = called.get("trajectory_id")
        if not isinstance(name, str):
            raise Rejected(Reason.WRONG_TYPE, f"a sub-agent whose trajectory_id is {describe(name)}")
        yield from _agents({"schema_version": version, **called}, f"{prefix}{name}/")


def _turns(step: Row, prefix: str) -> Iterator[AgentTurn]:
    # The turns of a step. The agent's is named `step[3]`, unless it is copied from elsewhere or no model made it.
    is_made = step.get("source") == "agent" and not step.get("is_copied_context") and step.get("llm_call_count") != 0
    if is_made and not isinstance(step.get("step_id"), int | str):
        raise Rejected(Reason.WRONG_TYPE, f"a step whose step_id is {describe(step.get('step_id'))}; a number is expected")
    name = f"{prefix}step[{step.get('step_id')}]" if is_made else None
    try:
        turn, *results = _messages(step)
    except Rejected as error:
        turn, results = error, []
    yield AgentTurn(turn, name)
    yield from map(AgentTurn, results)


def _messages(step: Row) -> list[object]:
    observation, extra = step.get("observation"), step.get("extra")
    results = objects(observation.get("results") if isinstance(observation, dict) else observation)
    change = extra.get("context_management") if isinstance(extra, dict) else None
    # A system step that only adds text leaves what was shown before as it was.
    is_addition = isinstance(change, dict) and change.get("boundary") == "append"
    is_summary = any(not is_blank(result.get("subagent_trajectory_ref")) for result in results)
    if step.get("source") == "system" and not is_addition and (is_summary or not is_blank(change)):
        raise Rejected(Reason.CONTEXT_GAP, f"step {step.get('step_id')} changes the context of all later ones")
    if (role := _ROLES.get(str(step.get("source")))) is None:
        sources = ", ".join(_ROLES)
        raise Rejected(Reason.UNKNOWN_ROLE, f"a step whose source is {describe(step.get('source'))}; known are {sources}")
    calls = [
        {"id": call.get("tool_call_id"), "function": {"name": call.get("function_name"), "arguments": call.get("arguments")}}
        for call in objects(step.get("tool_calls"))
    ]
    message = {"role": role, "content": step.get("message"), "reasoning_content": step.get("reasoning_content")}
    return [message | {"tool_calls": calls}, *map(_output, results)]


def _output(result: Row) -> object:
    if result.get("content") is None:
        return Rejected(Reason.CONTEXT_GAP, f"a result of the call {result.get('source_call_id')!a} without content")
    return {"role": "tool", "tool_call_id": result.get("source_call_id"), "content": result["content"]}


SHAPES = (
    Shape(
        "atif",
        "a trajectory in ATIF (Harbor, NeMo Agent Toolkit, NeMo Relay); the last turn or all of each agent are judged",
        '`schema_version`, "ATIF-v1.0" to "ATIF-v1.7", and `steps`',
        lambda row: str(row.get("schema_version")).startswith("ATIF-") and isinstance(row.get("steps"), list),
        *readers(lambda row: list(_agents(row))),
        reads=("schema_version", "agent", "steps", "subagent_trajectories", "tools"),
        layout="""{"schema_version": str, "agent": object, "steps": [step, ...], "subagent_trajectories"?: [trajectory, ...]}
step: {"step_id": int, "source": "system" | "user" | "agent", "message": str, "reasoning_content"?: str,
       "tool_calls"?: [{"tool_call_id": str, "function_name": str, "arguments": object}, ...],
       "observation"?: {"results": [{"source_call_id": str, "content": str}, ...]}, "is_copied_context"?: bool}

Names: `step[3]`, by `step_id`; of a sub-agent `ID/step[3]`, after its `trajectory_id`.""",
    ),
)
