"""TRL's `reward_funcs` (GRPO, RLOO), 1.16. None becomes NaN there, and stays out of the group's mean.

But only if every function has None: else TRL adds up the numbers that there are. So functions go `beside` the reward.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay_client._client import Client, default_client
from assay_client._reward import Reward


class AssayReward:
    """`reward_funcs=AssayReward()`: the reward of each completion. Prompts must be conversations, not texts."""

    def __init__(
        self,
        client: Client | None = None,
        *,
        reference: str | None = None,
        fields: Sequence[str] = (),
        tools: Sequence[Any] = (),
        beside: Mapping[Callable[..., Any], float] | None = None,
        name: str = "assay",
    ) -> None:
        """`reference` and `fields` name columns of the data set that the model reads.

        `tools` are the trainer's, functions or schemas; without them each row's are in its column `tools`. `beside` has
        other reward functions with their weights: the reward is the sum, and None where this one's is missing. TRL logs
        it by `name`.
        """
        self._client, self._reference, self._fields = client or default_client(), reference, fields
        self._tools, self._beside, self.__name__ = list(map(_schema, tools)), dict(beside or {}), name

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        rewards = self._client.rewards(self._conversations(prompts, completions, columns))
        others = [function(prompts=prompts, completions=completions, **columns) for function in self._beside]
        return self._sum(rewards, others, columns)

    def _conversations(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> list[dict[str, Any]]:
        if any(isinstance(prompt, str) for prompt in prompts):
            raise TypeError("the prompts are texts, whose roles nobody knows: use TRL's conversational format")
        conversations: list[dict[str, Any]] = []
        for row, (prompt, answer) in enumerate(zip(prompts, completions, strict=True)):
            tools = self._tools or (columns["tools"][row] if "tools" in columns else None) or []
            conversation = {"messages": [*prompt, *answer], "tools": json.loads(tools) if isinstance(tools, str) else tools}
            fields = {"fields": {name: columns[name][row] for name in self._fields}}
            reference = {"reference": columns[self._reference][row]} if self._reference else {}
            conversations.append({**conversation, **fields, **reference})
        return conversations

    def _sum(self, rewards: list[Reward], others: list[list[float | None]], columns: dict[str, Any]) -> list[float | None]:
        if "log_extra" in columns:  # TRL's hook for a column in its table of completions
            columns["log_extra"](f"{self.__name__}_reason", [reward.reason or "" for reward in rewards])
        sums = [reward.value for reward in rewards]
        for (function, weight), numbers in zip(self._beside.items(), others, strict=True):
            # A function may have None for other tasks' rows, which adds nothing; an AssayReward's is a missing number.
            nothing = None if isinstance(function, AssayReward) else 0.0
            added = [nothing if number is None else weight * number for number in numbers]
            pairs = zip(sums, added, strict=True)
            sums = [None if total is None or more is None else total + more for total, more in pairs]
        return sums


class AsyncAssayReward(AssayReward):
    """The same, for TRL to await beside its other asynchronous rewards; those `beside` it may be asynchronous, too."""

    async def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:  # type: ignore[override]
        rewards = await self._client.rewards_async(self._conversations(prompts, completions, columns))
        results = [function(prompts=prompts, completions=completions, **columns) for function in self._beside]
        others = [await result if inspect.isawaitable(result) else result for result in results]
        return self._sum(rewards, others, columns)


def _schema(tool: Any) -> Any:
    if isinstance(tool, dict):
        return tool
    from transformers.utils import get_json_schema  # as TRL shows a function to the policy

    return get_json_schema(tool)
