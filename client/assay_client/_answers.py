"""A policy's answers as trainers hand them over, as what the endpoint is to read."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay_client._reward import Reward
from assay_client._wire import read_conversation

# Begin marks of reasoning that chat templates write into the prompt: DeepSeek-R1's and most others', MiniMax-M3's,
# Seed-OSS', Magistral's, Kimi's and LongCat's.
_BEGINS = ("<think>", "<mm:think>", "<seed:think>", "[THINK]", "◁think▷", "<longcat_think>")
_PARSED = ("reasoning_content", "reasoning", "thinking", "tool_calls")
# Why all responses of a call have no reward when its settings are wrong, or nobody answers.
_SETTINGS_REASONS = {
    "invalid_api_key", "model_not_found", "no_such_field", "no_principles", "no_route", "wrong_method", "unknown_host",
    "no_keys", "http_401", "http_403", "http_404", "http_405", "unreachable", "closed",
}  # fmt: skip


def with_opening(answer: str, prompt: Any = None) -> str:
    """The answer with the begin mark of reasoning that the policy's template wrote before it, unless it has one itself.

    The mark is that with which a rendered `prompt` ends, or else ASSAY_OPENING.
    """
    # Cut off amid its reasoning, the text alone has no mark, and would be judged as an answer.
    setting = os.environ.get("ASSAY_OPENING", "")
    marks = tuple(filter(None, (*_BEGINS, setting.strip())))
    if answer.lstrip().startswith(marks):
        return answer
    prompt = prompt if isinstance(prompt, str) else ""
    mark = next((mark for mark in marks if prompt.rstrip().endswith(mark)), None)
    return (prompt[prompt.rindex(mark) :] if mark else setting) + answer


def with_opening_in_turn(turn: dict[str, Any]) -> dict[str, Any]:
    """The same for a turn of the policy's, which may have been taken apart already."""
    is_whole = isinstance(turn.get("content"), str) and not any(turn.get(name) for name in _PARSED)
    return turn | ({"content": with_opening(turn["content"])} if is_whole and turn["role"] == "assistant" else {})


class Groups:
    """Joins conversations with equal prompts into one with all their `responses`, which a judge that compares needs.

    One without `responses` stays alone.
    """

    def __init__(self, conversations: Sequence[dict[str, Any]]) -> None:
        places: dict[bytes | int, list[int]] = {}
        for place, conversation in enumerate(conversations):
            prompt = read_conversation({**conversation, "responses": None}).pieces[0]
            places.setdefault(prompt if "responses" in conversation else place, []).append(place)
        self.conversations: list[Mapping[str, Any]] = []
        for group in places.values():
            responses = [response for place in group for response in conversations[place].get("responses", ())]
            self.conversations.append(conversations[group[0]] | ({"responses": responses} if responses else {}))
        self._places = [place for group in places.values() for place in group]

    def in_order(self, rewards: Sequence[Reward]) -> list[Reward]:
        """Those of `conversations`, in the order of the answers."""
        return [reward for _, reward in sorted(zip(self._places, rewards, strict=True), key=lambda pair: pair[0])]


def raise_for_settings(rewards: Sequence[Reward], reasons: Iterable[str] = ()) -> None:
    """Raise `NoReward` if all rewards are missing for one reason, of `reasons` or of those that no response can cause."""
    causes = {reward.reason for reward in rewards}
    if len(causes) == 1 and causes <= _SETTINGS_REASONS | {*reasons}:
        rewards[0].require()
