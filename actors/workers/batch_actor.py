"""A scorer in a Ray actor: starts the engine, runs the self-test, and scores blocks."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from actors.endpoint.account import Notes
from actors.engine.protocol import Engine
from actors.launch.start_engine import Report, start_engine
from actors.records import Reason, RenderedRequest, Score, Status
from actors.reward_model import RewardModel
from actors.scorers.batch_noise import BatchNoise, largest_noise, noise_between
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.head_scorer import HeadScorer, ScoreBlock, Scores
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings
from actors.workers.engine_process import EngineProcess

WithScoreCache = Callable[[ScoreBlock, Report], ScoreBlock]
"""Puts a memory around a scorer, which asks it for what is new alone. What goes wrong there is reported, and not raised."""

# To measure the noise of batching, one in 32 of an engine's first 512 requests is asked again, 3 % of a small run.
_ONE_IN, _AMONG = 32, 512


class BatchActor(EngineProcess[RenderedRequest, Scores]):
    """One engine and its scorer. `score` may be called from several threads at a time."""

    def __init__(
        self,
        model: RewardModel,
        settings: EngineSettings,
        ledger: Any,
        remember: WithScoreCache | None = None,
        engine: Engine | None = None,
        *,
        notes: Notes | None = None,
    ) -> None:
        """`engine` is one of this process that is started already, for another model of the same `engine_identity`.

        `notes` is where an engine behind an address keeps what it was asked for.
        """
        start = partial(start_engine, model, settings, notes=notes, warn=partial(self._call, "warn"))
        super().__init__(ledger, lambda report: _tested(model, settings, report, engine or start(report=report)))
        is_fake = settings.engine == "fake"
        # Texts are kept for whoever asks for them later, also where this run doesn't.
        self._scorer = scorer_of(model if remember is None else model.tracing, self.engine, rehearsal=is_fake)
        self._drops_texts = remember is not None and not model.judge.trace
        self._score_block: ScoreBlock = self._scorer.score_block
        if remember is not None:
            # Inside the work that the ledger counts, whose requests must be the same in every process that ever gets it:
            # what is remembered may have grown in between.
            self._score_block = remember(self._scorer.score_block, partial(self._call, "warn"))
        self._measured = self._scorer if isinstance(self._scorer, HeadScorer) and not is_fake else None
        self._places = itertools.count()
        self._noises: list[BatchNoise] = []

    @property
    def runner(self) -> str:
        return self.engine.runner

    def score(self, work: str, requests: Sequence[RenderedRequest]) -> list[Scores]:
        return self.run(work, requests)

    def measure_noise(self, work: str, requests: Sequence[RenderedRequest], scores: Sequence[Scores]) -> None:
        """Ask a few requests of a scored block again, and note in the ledger by how much their rewards differ.

        Of a judge's texts nothing is measured: what they differ by isn't rounding.
        """
        if self._measured is None:
            return
        computed = (pair for pair in zip(requests, scores, strict=True) if self.is_answer(pair[1]))
        places = zip(computed, self._places, strict=False)
        chosen = [pair for pair, place in places if place % _ONE_IN == 0 and place < _AMONG]
        if not chosen:
            return
        results = self.run(f"{work}/again", [request for request, _ in chosen], self._measured.score_uncached)
        rewards = [score.reward for _, scores_before in chosen for score in scores_before]
        repeated = [score.reward for scores_again in results for score in scores_again]
        self._noises += filter(None, [noise_between(rewards, repeated)])
        if (noise := largest_noise(self._noises)) is not None:
            self._call("note_noise", self._holder, noise)

    def compute(self, items: Sequence[RenderedRequest]) -> list[Scores]:
        return self._shown(self._score_block(items))

    def compute_anew(self, items: Sequence[RenderedRequest]) -> list[Scores]:
        return self._shown(self._scorer.score_block(items))

    def _shown(self, block: list[Scores]) -> list[Scores]:
        return [tuple(replace(score, trace=()) for score in scores) for scores in block] if self._drops_texts else block

    def is_answer(self, result: Scores) -> bool:
        return any(
            score.status is not Status.REJECTED
            and score.reason not in (Reason.ENGINE_TIMEOUT, Reason.ENGINE_REFUSED)
            and not score.from_store
            for score in result
        )

    def killer_result(self, item: RenderedRequest) -> Scores:
        return tuple(
            response.refusal
            or replace(Score.failed(Reason.ENGINE_KILLER), truncated=response.truncated, reasoned=response.reasoned)
            for response in item.responses
        )


def _tested(model: RewardModel, settings: EngineSettings, report: Report, engine: Engine) -> Engine:
    if settings.engine != "fake":  # whose numbers are made up
        self_test(model, engine, report=report)
    return engine
