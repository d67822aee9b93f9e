"""A policy in a Ray actor: starts the engine, and generates candidates for blocks of prompts."""

from collections.abc import Sequence
from typing import Any

from actors.launch.start_engine import start_engine
from actors.records import Reason
from actors.rendering.model_tokenizer import special_tokens
from actors.scorers.policy import CandidatePrompt, GeneratedCandidate, Policy, PolicyWriter, failed_candidate
from actors.settings.replica import EngineSettings
from actors.workers.engine_process import EngineProcess


class PolicyActor(EngineProcess[CandidatePrompt, tuple[GeneratedCandidate, ...]]):
    """One engine and its policy. `draw` may be called from several threads at a time."""

    def __init__(self, policy: Policy, settings: EngineSettings, ledger: Any) -> None:
        super().__init__(ledger, lambda report: start_engine(policy, settings, report=report))
        self._writer = PolicyWriter(policy.sampling, self.engine, special_tokens(policy))

    def draw(self, work: str, draws: Sequence[CandidatePrompt]) -> list[tuple[GeneratedCandidate, ...]]:
        return self.run(work, draws)

    def compute(self, items: Sequence[CandidatePrompt]) -> list[tuple[GeneratedCandidate, ...]]:
        return self._writer.draw_block(items)

    def is_answer(self, result: tuple[GeneratedCandidate, ...]) -> bool:
        return any(candidate.finish_reason is not None for candidate in result)

    def killer_result(self, item: CandidatePrompt) -> tuple[GeneratedCandidate, ...]:
        return (failed_candidate(Reason.ENGINE_KILLER),) * len(item.seeds)
