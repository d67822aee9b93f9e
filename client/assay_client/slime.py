"""slime's `--custom-rm-path assay_client.slime.custom_rm`, with and without `--group-rm`.

slime has no place for a missing number: `NoReward` ends the rollout.
"""

from typing import Any

from assay_client._client import default_client


async def custom_rm(args: Any, sample: Any, **_: Any) -> Any:
    """The reward of a sample, or a list of them for a list. Raises `NoReward`, and `ValueError` for what can't be judged.

    The prompt is `metadata["messages"]` or the sample's, and must be turns: a text may be rendered already. A label, if
    there is one, is sent as the reference.
    """
    samples = sample if isinstance(sample, list) else [sample]
    rewards = await default_client().rewards_async([_conversation(args, each) for each in samples])
    numbers = [reward.require() for reward in rewards]
    return numbers if isinstance(sample, list) else numbers[0]


def _conversation(args: Any, sample: Any) -> dict[str, Any]:
    if not args.rollout_skip_special_tokens:
        raise ValueError("responses end with special tokens, which would be judged: set --rollout-skip-special-tokens")
    messages = (sample.metadata or {}).get("messages", sample.prompt)
    if isinstance(messages, str):
        raise ValueError("the prompt is a text: put its turns into metadata['messages'], or leave out --apply-chat-template")
    reference = {} if sample.label is None else {"reference": sample.label}
    return {"messages": messages, "responses": [sample.response], **reference}
