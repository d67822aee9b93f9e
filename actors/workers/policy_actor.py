"""A policy in a Ray actor: starts the engine, and generates candidates for blocks of prompts."""

from collections.abc import Sequence
from typing import Any

from actors.launch.start_engine import start_engine
from actors.records import Reason
from actors.rendering.model_tokenizer import special_tokens
from actors.scorers.policy import CandidatePrompt, GeneratedCandidate, Policy, PolicyWriter, failed_candidate
from actors.settings.replica import EngineSettings
from actors.workers.engine_process import Computation, EngineProcess


class PolicyActor:
    """One engine and its policy. `draw` may be called from several threads at a time."""

    def __init__(self, policy: Policy, settings: EngineSettings, ledger: Any) -> None:
        self._process = EngineProcess(ledger, lambda report: start_engine(policy, settings, report=report))
        writer = PolicyWriter(policy.sampling, self._process.engine, special_tokens(policy))
        self._computation = Computation(writer.draw_block, writer.draw_block, _is_answer, _fail_killer)

    def draw(self, work: str, draws: Sequence[CandidatePrompt]) -> list[tuple[GeneratedCandidate, ...]]:
        """Generate candidates for a block of prompts. `work` names it, the same in every process that ever gets it."""
        return self._process.run(work, draws, self._computation)


def _is_answer(candidates: tuple[GeneratedCandidate, ...]) -> bool:
    return any(candidate.finish_reason is not None for candidate in candidates)


def _fail_killer(draw: CandidatePrompt) -> tuple[GeneratedCandidate, ...]:
    return (failed_candidate(Reason.ENGINE_KILLER),) * len(draw.seeds)
