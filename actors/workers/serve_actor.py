"""A scorer in a Ray Serve replica: ends the process when the engine is dead, and reports its load.

Serve then starts another replica. A dead engine is never repaired: its requests are lost, and their clients get an error.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any, TypeVar

from ray.util.metrics import Gauge

from actors.errors import EngineDead
from actors.reward_model import RewardModel
from actors.scorers.online import OnlineScorer, WithScoreMemory
from actors.settings.replica import EngineSettings, RenderSettings

T = TypeVar("T")

# In which requests under way are answered, before the process ends.
_LAST_WORDS_S = 0.1


class ServeActor:
    """One engine and its scorer. The constructor includes the self-test; the replica is ready when it returns."""

    def __init__(
        self, model: RewardModel, render: RenderSettings, engine: EngineSettings, remember: WithScoreMemory | None = None
    ) -> None:
        self._scorer = OnlineScorer(model, render, engine, remember)
        self._tokens = Gauge("assay_replica_tokens", "prompt tokens that wait for an engine or are in it", ("model",))
        self._tokens.set_default_tags({"model": model.model})

    async def answer(self, call: Callable[[OnlineScorer], Awaitable[T]]) -> T:
        """What a coroutine of the scorer returns; `call` is one of its methods with all other arguments."""
        with _exit_if_dead():
            return await call(self._scorer)
        raise AssertionError("unreachable")

    async def check_health(self) -> None:
        self._tokens.set(self._scorer.tokens_under_way)
        with _exit_if_dead():
            await self._scorer.health()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The load that the autoscaling policy uses: prompt tokens that wait for the engine or are in it."""
        return {"tokens": float(self._scorer.tokens_under_way)}

    def __del__(self) -> None:
        # Serve calls this at the end of a replica: also of one whose constructor has raised.
        if hasattr(self, "_scorer"):
            self._scorer.close()


@contextmanager
def _exit_if_dead() -> Any:
    try:
        yield
    except EngineDead:
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, os._exit, 1)
        raise
