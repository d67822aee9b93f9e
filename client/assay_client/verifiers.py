"""verifiers' reward, 0.4: `--env.taskset.task.rewards.assay.fn assay_client.verifiers.reward`, or awaited in a `@vf.reward`.

`NoReward` is recorded as the rollout's error, which verifiers can retry, and no reward is.
"""

from typing import Any

from verifiers.v1.dialects.chat import message_to_wire

from assay_client._client import default_client


async def reward(task: Any, trace: Any) -> float:
    """The reward of the last branch's last turn; `task` is the task's data. Raises `NoReward`."""
    return await _ask(trace, {})


async def reward_by_answer(task: Any, trace: Any) -> float:
    """The same from a model that compares with a reference: the task's `answer`."""
    return await _ask(trace, {"reference": task.answer})


async def _ask(trace: Any, reference: dict[str, str]) -> float:
    messages = [message_to_wire(message) for message in trace.messages]
    (outcome,) = await default_client().rewards_async([{"messages": messages, **reference}])
    return outcome.require()
