"""verl's `compute_score`, 0.9: `reward.custom_reward_function.path=pkg://assay_client.verl`, `.name=compute_score`.

verl has no place for a missing number: `NoReward` ends the step.
"""

from collections.abc import Mapping
from typing import Any

from assay_client._client import default_client
from assay_client._reward import NoReward

_ONE_TURN = 2  # verl counts the prompt and the answer


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    prompt_key: str = "raw_prompt",
    reference: bool = False,
    **_: Any,
) -> float:
    """The reward of a response to `extra_info[prompt_key]`, turns or a user's text; verl's agent loop puts it there.

    `prompt_key`, and `reference` (to send the ground truth), come from `reward_kwargs`. Raises `NoReward`, also for a
    trajectory of several turns: verl gives all of it, tools' answers too, as a single text.
    """
    info = extra_info or {}
    if (info.get("num_turns") or _ONE_TURN) > _ONE_TURN:
        raise NoReward("several_turns", f"the text holds {info['num_turns']} turns, and their borders are lost")
    if info.get(prompt_key) is None:
        raise NoReward("no_messages", f"extra_info has no {prompt_key!r}: name the prompt's key by prompt_key")
    prompt = info[prompt_key]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(turn) for turn in prompt]
    conversation: dict[str, Any] = {"messages": messages, "responses": [solution_str]}
    (reward,) = await default_client().rewards_async([conversation | ({"reference": ground_truth} if reference else {})])
    return reward.require()
