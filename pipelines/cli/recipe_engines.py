"""Engines of a recipe: `score` steps of one model that follow each other, such as a judge's rubrics, share them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from pipelines.run.scoring.score_corpus import StartPipeline
from pipelines.run.scoring.shared_engines import shared_engines
from pipelines.settings.run_settings import ScoreSettings


@contextmanager
def recipe_engines(stages: Sequence[Mapping[str, Any]]) -> Iterator[Callable[[ScoreSettings], StartPipeline | None]]:
    """For each `score` step, in their order, what starts its pipeline on shared engines; None if it shares none."""
    steps = [stage["score"] for stage in stages if "score" in stage]
    with ExitStack() as kept:
        shared: list[StartPipeline] = []

        def engines_for(step: ScoreSettings) -> StartPipeline | None:
            place = next(number for number, other in enumerate(steps) if other is step)
            if place == 0 or _asked(steps[place - 1]) != _asked(step):
                kept.close()
                shared.clear()
                if _asked(step) in map(_asked, steps[place + 1 : place + 2]):
                    shared.append(kept.enter_context(shared_engines(with_vllm=step.engine.is_vllm)))
            return shared[0] if shared else None

        yield engines_for


def _asked(step: ScoreSettings) -> object:
    """What steps that share an engine have in common; nothing of an endpoint or a verifier, without an engine to keep."""
    model = step.model
    if step.engine.engine == "none":
        return object()
    return model.model, model.revision, model.adapter, model.dtype, step.engine
