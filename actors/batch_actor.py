"""A scorer in a Ray actor: starts the engine, scores blocks, and ends the process when the engine is dead.

Ray then starts the actor again and gives it the lost blocks. `ray.actor.exit_actor` wouldn't do: Ray doesn't retry after it.
"""

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from actors.crash_guard import SUSPECT
from actors.engines import start_engine
from actors.errors import AssayError, EngineDead
from actors.models import RewardModel
from actors.records import Reason, RenderedRequest, Score
from actors.scorer import Scores
from actors.scorers import scorer_of
from actors.self_test import self_test
from actors.settings import EngineSettings


class BatchActor:
    """One engine and its scorer. `score` may be called from several threads at a time.

    `is_restart` tells that an earlier process of this actor died, so that some of its work may be done already.
    """

    def __init__(self, model: RewardModel, settings: EngineSettings, ledger: Any) -> None:
        self._ledger = ledger
        self._gate = _Gate()
        self.is_restart: bool = self._call("starting", ray.get_runtime_context().get_actor_id() or "driver")
        try:
            self._engine = start_engine(model, settings)
            if settings.engine != "fake":  # whose numbers are made up
                self_test(model, self._engine)
        except AssayError as error:
            self._call("died", str(error))
            raise
        self._scorer = scorer_of(model, self._engine, rehearsal=settings.engine == "fake")
        # Ray ends actors by ending their process. Later than here, the engine's thread would be frozen already.
        atexit.register(self._engine.close)

    def score(self, work: str, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score a block of work. `work` names it, the same in every process that ever gets it."""
        if self._call("deaths", work) < SUSPECT:
            with self._gate.beside_others():
                return self._enter(work, requests)
        with self._gate.alone():
            return self._score_one_by_one(work, requests)

    def _score_one_by_one(self, work: str, requests: Sequence[RenderedRequest]) -> list[Scores]:
        settled: list[Scores] = self._call("settled", work)
        for number, request in enumerate(requests[len(settled) :], len(settled)):
            settled.append(self._score_suspect(f"{work}/{number}", request))
            self._call("settle", work, settled[-1])
        self._call("leave", work)
        return settled

    def _score_suspect(self, work: str, request: RenderedRequest) -> Scores:
        if self._call("deaths", work) < SUSPECT:
            return self._enter(work, [request])[0]
        return tuple(
            Score.rejected(response.reason) if response.reason else Score.failed(Reason.ENGINE_KILLER)
            for response in request.responses
        )

    def _enter(self, work: str, requests: Sequence[RenderedRequest]) -> list[Scores]:
        self._call("enter", work)
        try:
            scores = self._scorer.score_block(requests)
        except EngineDead as error:
            self._call("died", str(error))
            os._exit(1)
        self._call("leave", work)
        return scores

    def _call(self, method: str, *arguments: Any) -> Any:
        return ray.get(getattr(self._ledger, method).remote(*arguments))


class _Gate:
    """Many beside each other, or one alone: a suspect that kills the engine must not take other work with it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beside = 0
        self._alone = False

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._beside += 1
        try:
            yield
        finally:
            with self._changed:
                self._beside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: self._beside == 0)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
