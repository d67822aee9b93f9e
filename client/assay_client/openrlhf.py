"""OpenRLHF's `reward_func`, 0.11: `--reward.remote_url my_reward.py`, a file that imports it from here.

Its texts are in the policy's template, which ASSAY_TEMPLATE names. OpenRLHF logs `NoReward`, and fails later.
"""

import os
from functools import cache
from typing import Any
from urllib.parse import urlencode

import torch

from assay_client._client import MODEL, Client
from assay_client._reward import Reward
from assay_client._wire import Item, Route, read_reward, to_json


def remote_rm_url(url: str, template: str | None = None, model: str | None = None) -> str:
    """The address for `--reward.remote_url`, without a client; `template` is the policy's, such as chatml."""
    query = urlencode({name: text for name, text in (("from_template", template), ("model", model)) if text})
    return f"{url}/get_reward?{query}"


def reward_func(queries: list[str], prompts: list[str], labels: list[Any], **_: Any) -> dict[str, Any]:
    """Tensors of the rewards, as OpenRLHF calls it. Raises `NoReward` if any is missing."""
    items = [Item((to_json(query), to_json(prompt))) for query, prompt in zip(queries, prompts, strict=True)]
    # A tensor holds no None, and a NaN would spoil the advantages of the whole batch.
    rewards = torch.tensor([reward.require() for reward in _client().submit(items).result()])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


@cache
def _client() -> Client:
    path = remote_rm_url("", os.environ.get("ASSAY_TEMPLATE"), os.environ.get(MODEL))
    return Client(route=Route(path, ("query", "prompts"), _read))


def _read(answer: Any) -> list[list[Reward]]:
    columns = (answer[name] for name in ("rewards", "statuses", "reasons"))
    return [[read_reward(*outcome)] for outcome in zip(*columns, strict=True)]
