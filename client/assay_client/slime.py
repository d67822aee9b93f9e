"""slime's `--custom-rm-path assay_client.slime.custom_rm`, with and without `--group-rm`.

slime has no place for a missing number: `NoReward` ends the rollout.
"""

from typing import Any

from assay_client._answers import Groups, with_opening
from assay_client._client import default_client
from assay_client._reward import NoReward


async def custom_rm(args: Any, sample: Any, **_: Any) -> Any:
    """The reward of a sample, or a list of them for a list. Raises `NoReward`, and `ValueError` for what can't be judged.

    The prompt is `metadata["messages"]` or the sample's, and must be turns: a text may be rendered already. Tools are
    `metadata["tools"]`, where slime's `--tool-key` puts them. A label, if there is one, is sent as the reference. Samples of
    a list with equal prompts are judged together.
    """
    samples = sample if isinstance(sample, list) else [sample]
    groups = Groups([_conversation(args, each) for each in samples])
    rewards = groups.in_order(await default_client().rewards_async(groups.conversations))
    numbers = [reward.require() for reward in rewards]
    return numbers if isinstance(sample, list) else numbers[0]


def _conversation(args: Any, sample: Any) -> dict[str, Any]:
    if not args.rollout_skip_special_tokens:
        raise ValueError("responses end with special tokens, which would be judged: set --rollout-skip-special-tokens")
    # Zeros hide what others wrote. slime's own generation has them, too, for the text from before an update of the weights.
    is_resumed = args.mask_offpolicy_in_partial_rollout and not args.custom_generate_function_path
    if 0 in (sample.loss_mask or ()) and not is_resumed:
        raise NoReward("several_turns", "the loss mask has zeros: a text with others' turns can't be judged as an answer")
    if any((sample.multimodal_inputs or {}).values()):
        raise NoReward("content_not_text", "the sample has pictures or other media, which no text shows")
    metadata = sample.metadata or {}
    messages = metadata.get("messages", sample.prompt)
    if isinstance(messages, str):
        raise ValueError("the prompt is a text, whose roles nobody knows: put its turns into metadata['messages']")
    if "tools" not in metadata and any(turn["role"] == "tool" for turn in messages):
        raise ValueError("the prompt's turns call tools, and none are known: set --tool-key, or metadata['tools'] to []")
    answer = with_opening(sample.response, sample.prompt)
    conversation = {"messages": messages, "responses": [answer], "tools": metadata.get("tools") or []}
    return conversation if sample.label is None else conversation | {"reference": sample.label}
