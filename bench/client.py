"""1,024 calls at once, of one conversation each: by the client, which batches them, and by plain httpx.

Both ask tiny-attributes behind one `assay serve`. Rounds in turns, of conversations that differ, so that no cache helps.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from assay_client import Client
from tests.support.endpoints import serving

CALLS = 1024
ROUNDS = 5
WARM_UP = 64

Ask = Callable[[str, Sequence[dict[str, Any]]], Awaitable[list[float | None]]]


def main(arguments: Sequence[str]) -> None:
    """`client`."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "assay.log"
        with serving("--model", "tiny-attributes", log=log, RAY_worker_niceness="0") as (address, _):
            _measure(address)


def _measure(address: str) -> None:
    ways: dict[str, Ask] = {"client": ask_client, "httpx": ask_httpx}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for ask in ways.values():
        asyncio.run(ask(address, conversations(WARM_UP, "warm-up")))
    for number in range(ROUNDS):
        for name, ask in ways.items():
            calls = conversations(CALLS, f"{name} {number}")
            start = time.perf_counter()
            rewards = asyncio.run(ask(address, calls))
            rates[name].append(CALLS / (time.perf_counter() - start))
            missing = sum(reward is None for reward in rewards)
            print(f"{name}: {rates[name][-1]:.0f} calls/s, {missing} without a reward", flush=True)
    for name, values in rates.items():
        print(f"{name}: {min(values):.0f} {statistics.median(values):.0f} {max(values):.0f} (min, median, max)")
    ratios = [ours / plain for ours, plain in zip(*rates.values(), strict=True)]
    print(f"client/httpx: {min(ratios):.2f} {statistics.median(ratios):.2f} {max(ratios):.2f} (min, median, max)")


def conversations(count: int, name: str) -> list[dict[str, Any]]:
    """Of about 50 tokens each."""
    question = {"role": "user", "content": "What is 3 + 4?"}
    return [{"messages": [question, {"role": "assistant", "content": f"{name}: {number}"}]} for number in range(count)]


async def ask_client(address: str, calls: Sequence[dict[str, Any]]) -> list[float | None]:
    """Each call by itself."""
    async with Client(address) as client:
        answers = await asyncio.gather(*(client.rewards_async([call]) for call in calls))
    return [reward.value for rewards in answers for reward in rewards]


async def ask_httpx(address: str, calls: Sequence[dict[str, Any]]) -> list[float | None]:
    """The same, with httpx's own settings but for the time that it waits."""
    async with httpx.AsyncClient(base_url=address, timeout=600) as client:

        async def ask(call: dict[str, Any]) -> float | None:
            answer = (await client.post("/v1/rewards", json={"conversations": [call]})).raise_for_status().json()
            reward: float | None = answer["data"][0]["responses"][0]["reward"]
            return reward

        return await asyncio.gather(*map(ask, calls))
