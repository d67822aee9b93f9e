"""verifiers' reward, 0.4: `--env.taskset.task.rewards.assay.fn assay_client.verifiers.reward`, or awaited in a `@vf.reward`.

`NoReward` is recorded as the rollout's error, which verifiers can retry, and no reward is.
"""

from typing import Any

from verifiers.v1.dialects.chat import message_to_wire

from assay_client._client import default_client
from assay_client._reward import NoReward


async def reward(task: Any, trace: Any) -> float:
    """The reward of the last branch's last turn; `task` is the task's data. Raises `NoReward`."""
    return await _ask(trace, {})


async def reward_by_answer(task: Any, trace: Any) -> float:
    """The same from a model that compares with a reference: the task's `answer`."""
    return await _ask(trace, {"reference": task.answer})


async def _ask(trace: Any, reference: dict[str, str]) -> float:
    branch = trace.branches[-1]
    conversation = {"messages": list(map(message_to_wire, branch.messages)), "tools": list(map(_tool_to_wire, branch.tools))}
    (outcome,) = await default_client().rewards_async([conversation | reference])
    return outcome.require()


def _tool_to_wire(tool: Any) -> dict[str, Any]:
    """As verifiers' training client shows it to the policy. Raises `NoReward` for what that refuses."""
    if tool.type != "function" or tool.namespace:
        raise NoReward("tool_kind", f"the tool {tool.name!r} is no plain function, which nobody can show to a model")
    names = {"name", "description", "parameters", "strict"}
    return {"type": "function", "function": tool.model_dump(mode="json", include=names, exclude_none=True)}
