"""TRL's `reward_funcs` (GRPO, RLOO), 1.16. None becomes NaN there, and stays out of the group's mean."""

from collections.abc import Sequence
from typing import Any

from assay_client._client import Client, default_client
from assay_client._reward import Reward


class AssayReward:
    """`reward_funcs=AssayReward()`: the reward of each completion. Prompts must be conversations, not texts."""

    def __init__(self, client: Client | None = None, *, reference: str | None = None, fields: Sequence[str] = ()) -> None:
        """`reference` and `fields` name columns of the data set that the model reads."""
        self._client, self._reference, self._fields = client or default_client(), reference, fields

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        return _log(self._client.rewards(self._conversations(prompts, completions, columns)), columns)

    def _conversations(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> list[dict[str, Any]]:
        if any(isinstance(prompt, str) for prompt in prompts):
            raise TypeError("the prompts are texts, whose roles nobody knows: use TRL's conversational format")
        turns = [{"messages": [*prompt, *answer]} for prompt, answer in zip(prompts, completions, strict=True)]
        references = [{"reference": text} for text in columns[self._reference]] if self._reference else [{}] * len(turns)
        fields = [{"fields": {name: columns[name][row] for name in self._fields}} for row in range(len(turns))]
        return [{**each, **by, **read} for each, by, read in zip(turns, references, fields, strict=True)]


class AsyncAssayReward(AssayReward):
    """The same, for TRL to await beside its other asynchronous rewards."""

    async def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:  # type: ignore[override]
        return _log(await self._client.rewards_async(self._conversations(prompts, completions, columns)), columns)


def _log(rewards: list[Reward], columns: dict[str, Any]) -> list[float | None]:
    if "log_extra" in columns:  # TRL's hook for a column in its table of completions
        columns["log_extra"]("assay_reason", [reward.reason or "" for reward in rewards])
    return [reward.value for reward in rewards]
