"""A model of an endpoint in this process: the engine, renderer and scorer of a run, without the run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from actors.endpoint.account import Notes
from actors.launch.start_engine import start_engine
from actors.records import ScoreRequest
from actors.rendering.choose_renderer import renderer_of
from actors.reward_model import resolve_model
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.head_scorer import Scores
from actors.scorers.self_test import self_test
from pipelines.settings.options import build
from pipelines.settings.run_settings import CheckSettings

Score = Callable[[Sequence[ScoreRequest]], list[Scores]]


@contextmanager
def asking(
    address: str,
    name: str,
    notes: Notes | None = None,
    warn: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> Iterator[Score]:
    """Scores requests by a model of an endpoint, after its preflight."""
    settings = build(CheckSettings, {"model": name, "endpoint": address, **options})
    model = resolve_model(settings.model, settings.render)
    renderer = renderer_of(model, settings.render)
    engine = start_engine(model, settings.engine, notes=notes, warn=warn)
    try:
        self_test(model, engine)
        yield lambda requests: scorer_of(model, engine).score_block(renderer.render(requests))
    finally:
        engine.close()
