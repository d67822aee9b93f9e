"""The command `check`: runs the self-test of a model, the same as in every replica, in this process."""

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from actors.errors import AssayError
from actors.launch.start_engine import start_engine
from actors.reward_model import resolve_model
from actors.scorers.self_test import self_test
from actors.timeline import FILE, lines_of, mark, read
from pipelines.cli.plain_console import print_json
from pipelines.folders.run_folder.manifest import versions
from pipelines.settings.run_settings import CheckSettings


def check(settings: CheckSettings, passed: Callable[[str], None], warned: Callable[[str], None]) -> None:
    """Start an engine and self-test the model on it. Raises a `UserError` or `EngineError` that says what is wrong.

    Standard error tells what is waited for.
    """
    model = resolve_model(settings.model, settings.render, tensor_parallel=settings.engine.tensor_parallel)
    passed(f"{settings.model.model} is read as {model.family_name}: {model.family.summary}")
    with _engine_log() as terminal:
        report = partial(print, file=terminal, flush=True)
        engine = start_engine(model, settings.engine, report=report)
        try:
            self_test(model, engine, passed, report=report, must_read=True, warned=warned)
        finally:
            engine.close()


@contextmanager
def write_json(settings: CheckSettings) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Print versions, the checks that the block noted as passed or as doubts, and the error that it ended with, as JSON.

    Printed at the end also where a check fails, so that a report of a fault has the versions.
    """
    checks, warnings = list[str](), list[str]()
    failure: str | None = None
    try:
        yield checks.append, warnings.append
    except AssayError as error:
        failure = str(error)
        raise
    finally:
        machine = {"python": platform.python_version(), "platform": platform.platform()}
        about = {"model": settings.model.model, "versions": versions(), **machine}
        print_json({**about, "checks": checks, "warnings": warnings, "error": failure})


@contextmanager
def _engine_log() -> Iterator[TextIO]:
    # Send standard error of this process and of those started in the block to a file, which is kept if the block fails.
    # vLLM logs some twenty lines at each start that mean nothing to a user. Yields the standard error of before.
    sys.stderr.flush()
    # Of the descriptor and not of `sys.stderr`: vLLM's processes inherit the descriptor.
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as terminal:
        # A file and not a pipe, which nobody would read while the engine starts.
        number, path = tempfile.mkstemp(prefix="assay-check-", suffix=".log")
        os.dup2(number, 2)
        os.close(number)
        try:
            yield terminal
        except BaseException:
            print(f"the log of the engine is in {path}", file=terminal, flush=True)
            raise
        else:
            os.unlink(path)
        finally:
            sys.stderr.flush()
            os.dup2(terminal.fileno(), 2)


@contextmanager
def timed(write: Callable[[str], None]) -> Iterator[None]:
    """Write when each step of a start in this block began, in seconds since the block's beginning.

    Moments of all processes: the driver's, and those of the processes that vLLM starts.
    """
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
