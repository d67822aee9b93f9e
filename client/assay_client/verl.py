"""verl 0.9.1: `AssayRewardManager`, which its trainers load, and `compute_score`, which that or the `naive` manager calls.

verl has no place for a missing number: `NoReward` keeps a response out of the step, where a NaN would spoil its group.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from assay_client._answers import with_opening
from assay_client._client import default_client
from assay_client._reward import NoReward

_ONE_TURN = 2  # verl counts the prompt and the answer
_PROMPT_END, _END_TOKENS = "assay_prompt_end", 16  # of the rendered prompt, where a template opens reasoning


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
    """The reward of a response to `extra_info[prompt_key]`, turns or a user's text.

    `prompt_key`, and `reference` (to send the ground truth), come from `reward_kwargs`. Raises `NoReward`, also unless verl
    counts a single turn: it gives all turns, tools' answers too, as one text.
    """
    info = extra_info or {}
    if info.get("num_turns") != _ONE_TURN:
        # `dapo`, `gdpo` and `rate_limited` count none.
        reason = "several_turns" if info.get("num_turns") else "unknown_turns"
        raise NoReward(
            reason, f"num_turns is {info.get('num_turns')}: a text with others' turns can't be judged as an answer"
        )
    if info.get(prompt_key) is None:
        raise NoReward(
            "no_messages", f"extra_info has no {prompt_key!r}: load AssayRewardManager, or name its key by prompt_key"
        )
    prompt = info[prompt_key]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(turn) for turn in prompt]
    conversation: dict[str, Any] = {"messages": messages, "responses": [with_opening(solution_str, info.get(_PROMPT_END))]}
    (reward,) = await default_client().rewards_async([conversation | ({"reference": ground_truth} if reference else {})])
    return reward.require()


class AssayRewardManager(NaiveRewardManager):
    """verl's `naive` manager, with the prompt in `extra_info`: the default trainer puts it beside that."""

    def __init__(self, config: Any, **arguments: Any) -> None:
        """Calls the configured `custom_reward_function`, or `compute_score` with its `reward_kwargs`."""
        turns = config.actor_rollout_ref.rollout.multi_turn
        if turns.tool_config_path or turns.function_tool_path:
            raise ValueError("verl gives calls of tools as text, without the tools: such answers can't be judged")
        function = config.reward.custom_reward_function
        if not function.path:  # verl hands over its own rules then
            arguments["compute_score"] = partial(compute_score, **(function.get("reward_kwargs") or {}))
        super().__init__(config, **arguments)

    async def run_single(self, data: Any) -> Any:
        """The reward of a trajectory. Raises `NoReward`."""
        if len(data) > 1:
            raise NoReward("several_turns", f"the trajectory has {len(data)} sequences")
        fields = data.non_tensor_batch
        if "raw_prompt" in fields:
            fields["extra_info"][0]["raw_prompt"] = list(fields["raw_prompt"][0])
            fields["extra_info"][0][_PROMPT_END] = self.tokenizer.decode(data.batch["prompts"][0][-_END_TOKENS:])
        return await super().run_single(data)
