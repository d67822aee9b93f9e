"""The command `check`: runs the self-test of a model, the same as in every replica, in this process."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.launch.start_engine import start_engine
from actors.reward_model import resolve_model
from actors.scorers.self_test import self_test
from actors.timeline import FILE, lines_of, mark, read
from pipelines.settings.run_settings import CheckSettings


def check(settings: CheckSettings, passed: Callable[[str], None]) -> None:
    """Start an engine and self-test the model on it. Raises a `UserError` or `EngineError` that says what is wrong."""
    model = resolve_model(settings.model, settings.render, tensor_parallel=settings.engine.tensor_parallel)
    passed(f"{settings.model.model} is read as {model.family_name}: {model.family.summary}")
    engine = start_engine(model, settings.engine)
    try:
        self_test(model, engine, passed, must_read=True)
    finally:
        engine.close()


@contextmanager
def timed(write: Callable[[str], None]) -> Iterator[None]:
    """Write when each step of a start in this block began, in seconds since the block's beginning."""
    # Child processes inherit the variable and append to the same file, which holds the moments of all processes.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timeline")
        os.environ[FILE] = str(file)
        try:
            mark("check")
            yield
            mark("done")
        finally:
            del os.environ[FILE]
            moments = read(file)
            for line in lines_of(moments, moments[0].at):
                write(line)
