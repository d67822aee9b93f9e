"""TRL's `reward_funcs` (GRPO, RLOO), 1.16. None becomes NaN there, and stays out of the group's mean.

But only if every function has None: else TRL adds up the numbers that there are. So functions go `beside` the reward.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay_client._answers import Groups, raise_for_settings, with_opening_in_turn
from assay_client._client import Client, default_client
from assay_client._reward import Reward


class AssayReward:
    """`reward_funcs=AssayReward()`: the reward of each completion. Prompts must be conversations, not texts.

    Completions of a call with equal prompts are judged together. If none has a reward, for one reason that no completion can
    have caused, such as a wrong key, the call raises `NoReward`: TRL would train on nothing.
    """

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
        groups = self._groups(prompts, completions, columns)
        rewards = groups.in_order(self._client.rewards(groups.conversations))
        others = [function(prompts=prompts, completions=completions, **columns) for function in self._beside]
        return self._sum(rewards, others, completions, columns)

    def _groups(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> Groups:
        if any(isinstance(prompt, str) for prompt in prompts):
            raise TypeError("the prompts are texts, whose roles nobody knows: use TRL's conversational format")
        conversations: list[dict[str, Any]] = []
        for row, (prompt, answer) in enumerate(zip(prompts, completions, strict=True)):
            tools = self._tools or (columns["tools"][row] if "tools" in columns else None) or []
            if not tools and any(turn["role"] == "tool" for turn in answer):
                raise ValueError("a completion calls tools, and TRL doesn't say which there are: give them as `tools=`")
            conversation = {**_judged(prompt, answer), "tools": json.loads(tools) if isinstance(tools, str) else tools}
            fields = {"fields": {name: columns[name][row] for name in self._fields}}
            reference = {"reference": columns[self._reference][row]} if self._reference else {}
            conversations.append({**conversation, **fields, **reference})
        return Groups(conversations)

    def _sum(
        self, rewards: list[Reward], others: list[list[float | None]], answers: list[Any], columns: dict[str, Any]
    ) -> list[float | None]:
        unset = () if self._reference or self._fields else ("no_principle", "no_reference")
        # Where they called tools, their own turns may be why none answers the same as another.
        raise_for_settings(rewards, unset if any(len(answer) > 1 for answer in answers) else (*unset, "no_opponent"))
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
        groups = self._groups(prompts, completions, columns)
        rewards = groups.in_order(await self._client.rewards_async(groups.conversations))
        results = [function(prompts=prompts, completions=completions, **columns) for function in self._beside]
        others = [await result if inspect.isawaitable(result) else result for result in results]
        return self._sum(rewards, others, completions, columns)


def _judged(prompt: Sequence[Any], answer: Sequence[Any]) -> dict[str, Any]:
    context: list[Any] = [*prompt, *map(with_opening_in_turn, answer)]
    response = context.pop()
    # A tool's turn is no response, and one after the assistant's continues that: the endpoint reads them where they stand.
    is_alone = response["role"] != "assistant" or context[-1]["role"] == "assistant"
    return {"messages": [*context, response]} if is_alone else {"messages": context, "responses": [response]}


def _schema(tool: Any) -> Any:
    if isinstance(tool, dict):
        return tool
    from transformers.utils import get_json_schema  # as TRL shows a function to the policy

    return get_json_schema(tool)
