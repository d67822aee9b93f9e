"""A scorer in a Ray Serve replica: ends the process when the engine is dead, and says how much it has to do.

Serve then starts another replica. An engine is never mended: what it held is lost, and those who asked are told so.
"""

import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import contextmanager
from typing import Any, TypeVar

from ray.util.metrics import Gauge

from actors.engine.protocol import Sampling
from actors.errors import EngineDead
from actors.records import ScoreRequest
from actors.reward_model import RewardModel
from actors.scorers.calls import Call
from actors.scorers.online import OnlineScorer, Refused, Written
from actors.settings.replica import EngineSettings, RenderSettings

T = TypeVar("T")


class ServeActor:
    """One engine and its scorer. The replica is ready when this is made: the self-test is part of it."""

    def __init__(self, model: RewardModel, render: RenderSettings, engine: EngineSettings) -> None:
        self._scorer = OnlineScorer(model, render, engine)
        self._tokens = Gauge("assay_replica_tokens", "prompt tokens that wait for an engine or are in it", ("model",))
        self._tokens.set_default_tags({"model": model.model})

    async def answer(self, call: Call[T]) -> T:
        """The scorer's answer."""
        return await _or_die(call.run(self._scorer))

    async def stream(self, request: ScoreRequest, sampling: Sampling) -> AsyncIterator[Written | Refused]:
        """See `OnlineScorer.stream`."""
        with _death():
            async for written in self._scorer.stream(request, sampling):
                yield written

    async def check_health(self) -> None:
        """Serve asks from time to time."""
        self._tokens.set(self._scorer.tokens_under_way)
        await _or_die(self._scorer.health())

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What the autoscaling policy goes by: tokens that wait for the engine or are in it."""
        return {"tokens": float(self._scorer.tokens_under_way)}

    def __del__(self) -> None:
        """Serve calls this at the end of a replica."""
        if hasattr(self, "_scorer"):
            self._scorer.close()


@contextmanager
def _death() -> Any:
    try:
        yield
    except EngineDead:
        os._exit(1)


async def _or_die(work: Awaitable[T]) -> T:
    with _death():
        return await work
    raise AssertionError("unreachable")
