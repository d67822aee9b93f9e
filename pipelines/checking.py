"""The self-test of a model, by hand: the same checks as in every replica, in this process."""

from collections.abc import Callable

from actors.engines import start_engine
from actors.models import resolve
from actors.self_test import self_test
from pipelines.settings import CheckSettings


def check(settings: CheckSettings, passed: Callable[[str], None]) -> None:
    """Start an engine, and check the model on it. Raises a `UserError` or `EngineError` that says what is wrong."""
    model = resolve(settings.model, settings.render, tensor_parallel=settings.engine.tensor_parallel)
    passed(f"{settings.model.model} is read as {model.family_name}: {model.family.summary}")
    engine = start_engine(model, settings.engine)
    try:
        self_test(model, engine, passed, must_read=True)
    finally:
        engine.close()
