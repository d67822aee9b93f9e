"""The command line as a user runs it, in processes that tests may kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from actors.engine.fork_server import SWITCH, share
from tests.conftest import REPOSITORY
from tests.support.processes import family, title

PROGRAM = ("-m", "assay")
PATIENCE_S = 480.0
ENGINE_ACTOR = "MapBatches(ScoreStep)"


Run = Callable[..., subprocess.CompletedProcess[str]]
"""What runs a command to its end: `assay`, in a process, or `tests.support.local_ray.run_here`, in this one."""


def assay(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        _command(arguments),
        cwd=REPOSITORY,
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def sets(*assignments: str) -> tuple[str, ...]:
    """Assignments as a command takes them: `--set` before each."""
    return tuple(word for assignment in assignments for word in ("--set", assignment))


def summary(*arguments: object, run: Run = assay) -> dict[str, Any]:
    """Run a command that must succeed, with --json."""
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def refusal_of(*arguments: object, run: Run = assay) -> str:
    """What a command that can't be done as given says; it ends with 2, and without a traceback."""
    done = run(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@contextmanager
def running(*arguments: object, program: Sequence[str] = PROGRAM, **environment: str) -> Iterator[psutil.Process]:
    """A command under way, in a process group of its own; what is left of it at the end is killed."""
    process = subprocess.Popen(
        _command(arguments, program),
        cwd=REPOSITORY,
        env=_environment(environment),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    driver = psutil.Process(process.pid)
    try:
        yield driver
    finally:
        members = family(driver)
        process.kill()
        process.wait()
        for member in members:
            kill(member)
        psutil.wait_procs(members, timeout=PATIENCE_S)


def kill(process: psutil.Process) -> None:
    """Send SIGKILL, as the kernel does when memory runs out."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def wait_until(condition: Callable[[], bool], driver: psutil.Process, every_s: float = 0.02) -> None:
    """Wait until the condition holds or the command has ended; fails after 480 s.

    `every_s` is longer for a condition that costs the processor something, which the command needs itself.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(every_s)


def _describe(driver: psutil.Process) -> str:
    """A command's state and its processes, for the message of a failed test."""
    status = driver.status() if driver.is_running() else "gone"
    return f"{status}, with {', '.join(title(process)[-60:] for process in family(driver)) or 'no process'} below it"


def parts_of(folder: Path) -> list[Path]:
    """The committed parts of a run."""
    return sorted((folder / "parts").glob("*.parquet"))


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of change of each committed part: they change if a part is written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in parts_of(folder)}


def exported(scored: Path, folder: Path) -> bytes:
    """All responses with their scores, as `filter` writes them."""
    summary("filter", scored, folder, "--where", "true")
    return b"".join(path.read_bytes() for path in sorted(folder.glob("kept-*.jsonl")))


def actors_of(driver: psutil.Process) -> list[psutil.Process]:
    """The processes of a command that hold an engine."""
    return [process for process in family(driver) if ENGINE_ACTOR in title(process)]


def engines_of(driver: psutil.Process, count: int = 1) -> list[psutil.Process]:
    """vLLM's own processes of a command, once there are `count`.

    Call it before there are parts: looking through all processes of a busy machine takes seconds, in which a small run ends.
    """
    engines: list[psutil.Process] = []

    def are_enough() -> bool:
        engines[:] = [process for process in family(driver) if "EngineCore" in title(process)]
        return len(engines) == count

    wait_until(are_enough, driver, every_s=0.1)  # looking through all processes takes 20 to 50 ms of a core
    assert len(engines) == count, f"the command is {_describe(driver)}"
    return engines


def _command(arguments: tuple[object, ...], program: Sequence[str] = PROGRAM) -> list[str]:
    return [sys.executable, *program, *map(str, arguments)]


def _environment(more: dict[str, str]) -> dict[str, str]:
    """The tests' environment without their Ray, and with their fork server, which has imported vLLM."""
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {SWITCH: share()} | more
