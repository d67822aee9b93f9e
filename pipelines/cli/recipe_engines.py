"""Engines of a recipe: `score` steps of one model that follow each other, such as a judge's rubrics, share them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from pipelines.run.scoring.score_corpus import StartPipeline
from pipelines.run.scoring.shared_engines import shared_engines
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.run_settings import RunSettings, ScoreSettings


@contextmanager
def recipe_engines(stages: Sequence[Mapping[str, Any]]) -> Iterator[Callable[[Any], StartPipeline | None]]:
    """For each step, in their order, what starts its pipeline on shared engines; None if it shares none.

    Shared engines end before a step that starts others, which would wait for their GPUs.
    """
    steps = [step for stage in stages for step in stage.values() if _starts_engines(step)]
    with ExitStack() as kept:
        shared: list[StartPipeline] = []

        def engines_for(step: Any) -> StartPipeline | None:
            if not _starts_engines(step):
                return None
            # By identity: equal steps may stand in several stages.
            place = next(number for number, other in enumerate(steps) if other is step)
            if place == 0 or _engine_key(steps[place - 1]) != _engine_key(step):
                kept.close()
                shared.clear()
                # Only the next step counts: engines that wait through another step's would hold its GPUs.
                if _engine_key(step) in map(_engine_key, steps[place + 1 : place + 2]):
                    shared.append(kept.enter_context(shared_engines(with_vllm=step.engine.is_vllm)))
            return shared[0] if shared else None

        yield engines_for


def _starts_engines(step: Any) -> bool:
    return isinstance(step, RunSettings) or (isinstance(step, EvaluateSettings) and bool(step.model))


def _engine_key(step: Any) -> object:
    # What steps that share an engine have in common. Nothing of an endpoint or a verifier, without an engine to keep.
    # Nor of a pool whose size changes: Ray Data's alone does.
    if not isinstance(step, ScoreSettings) or step.engine.engine == "none" or step.work.max_replicas is not None:
        return object()
    model = step.model
    return model.model, model.revision, model.adapter, model.dtype, step.engine, step.work.replicas
