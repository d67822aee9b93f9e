"""A Ray of the tests' process, and the command line in that process, on it."""

import contextlib
import io
import os
import subprocess
import sys

import pytest

from actors.engine import fork_server
from pipelines.cli import app

_started: dict[str, dict[str, str]] = {}
"""The address of the Ray that was started last, and the environment variables that its workers have besides ours."""


@pytest.fixture(scope="module")
def local_ray() -> None:
    """A private Ray of four logical CPUs, which every run in this process uses.

    It stays for the files that come later, until `end_ray`.
    """
    use_ray({})


def use_ray(environment: dict[str, str]) -> None:
    """See to it that this process has a Ray of ours, whose workers have these environment variables, too."""
    import ray  # 0.5 s of CPU, which a test without Ray needn't wait for

    from pipelines.run.runtime.private_ray.ray_start import start_ray

    if ray.is_initialized() and environment.items() <= _started.get(ray.get_runtime_context().gcs_address, {"": ""}).items():
        return
    end_ray()  # one that started by itself, without the ways of ours
    os.environ[fork_server.SWITCH] = fork_server.share()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        start_ray(address="local", num_cpus=4, object_store_memory=300 * 2**20, include_dashboard=False, log_to_driver=False)
    _started.clear()
    _started[ray.get_runtime_context().gcs_address] = environment


def end_ray() -> None:
    """End the Ray of this process, if there is one, for a test that starts another."""
    import ray

    ray.shutdown()


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
