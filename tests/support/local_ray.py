"""A Ray of the tests' process, and the command line in that process, on it."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from actors.engine import fork_server
from pipelines.cli import app


@contextlib.contextmanager
def private_ray() -> Iterator[None]:
    """A private Ray of four logical CPUs, which every run in this process then uses."""
    import ray  # 0.5 s of CPU, which a test without Ray needn't wait for

    from pipelines.runtime.private_ray.ray_start import start_ray

    os.environ[fork_server.SWITCH] = fork_server.share()
    start_ray(address="local", num_cpus=4, object_store_memory=300 * 2**20, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One for all tests of a session."""
    with private_ray():
        yield


def run_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process: what a process and a Ray for it alone take is 8 s of CPU."""
    words = [app.PROGRAM, *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", words)
        try:
            app._run()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
