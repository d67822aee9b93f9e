"""Provides the Ray of a run: the cluster in `RAY_ADDRESS` (set under `ray job submit`), or a private one for this run."""

import contextlib
import logging
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray._private import auto_init_hook

from actors.engine import fork_server
from pipelines.run.runtime.private_ray.ray_start import start_ray

# Prefixes of Ray Data's threads that call Ray: the one that executes a dataset, and the one that fetches its output.
_THREADS = ("StreamingExecutor-", "iter_threaded")
_THREADS_END_S = 30.0
PLACE_S = 30.0  # until it is said what is waited for: on a busy machine, a process with room takes up to 20 s to start
_stop_requested = threading.Event()


def import_vllm(engine_is_vllm: bool) -> None:
    """Begin to import vLLM for the engines of a Ray of this run's own, beside whatever this process does next.

    On two cores the import takes five seconds, in which the rows are looked at and Ray starts.
    """
    if engine_is_vllm and "RAY_ADDRESS" not in os.environ and not ray.is_initialized():
        os.environ[fork_server.SWITCH] = fork_server.share()


@contextlib.contextmanager
def ray_session(with_vllm: bool = False) -> Iterator[None]:
    """A context with an initialised Ray. One that is initialised already is used, and left running.

    `with_vllm`: vLLM engines will be started, so vLLM is imported for them while a private Ray starts. Raises `RunStopped`
    if Ray doesn't start, and `KeyboardInterrupt` in the block after SIGTERM as after Ctrl-C.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_ADDRESS" not in os.environ:
        # Ray protects a private cluster with a token. If we set none, it writes one into the user's home, which every later
        # `ray start` on this machine would then demand. RAY_AUTH_MODE is left to the user.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if ray.is_initialized():
        yield
        return
    # "local", or else Ray joins any cluster whose address file another process on this machine left. At least two CPUs: with
    # one, reading and scoring would wait for each other for ever.
    private: dict[str, Any] = (
        {}
        if "RAY_ADDRESS" in os.environ
        else {"address": "local", "num_cpus": max(2, os.cpu_count() or 2), "include_dashboard": False}
    )
    in_main_thread = threading.current_thread() is threading.main_thread()  # Python sets handlers of signals in no other
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    _stop_requested.clear()
    import_vllm(with_vllm)
    with _quiet_core():
        context = start_ray(log_to_driver=False, logging_level=logging.ERROR, **private)
    for number in handlers if in_main_thread else ():
        # Ray's handler of SIGTERM prints a stack trace. A cluster stops a job with it, which must act like Ctrl-C.
        signal.signal(number, _stop)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it logs every dataset's plan; its errors are raised as well
    try:
        yield
    finally:
        try:
            _end_executions()
            ray.shutdown()
            for number, handler in handlers.items() if in_main_thread else ():
                signal.signal(number, handler)
        finally:
            if private:
                _delete(Path(context.address_info["session_dir"]))  # Ray leaves it in its temporary folder for ever


def _delete(folder: Path) -> None:
    # For 2 s, in which ending workers still write to their logs.
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def quiet_implicit_ray() -> None:
    """Let a Ray that starts by itself, because something uses it before `ray.init`, log as little as that of a run.

    By default all that its workers write goes to the standard error of this process: hundreds of lines for an engine. A
    `ray.init` of the user's logs as it says.
    """
    hook: Any = auto_init_hook
    hook.ray = SimpleNamespace(is_initialized=ray.is_initialized, init=_init_quietly)  # where the hook looks `init` up
    logging.getLogger("ray.widgets").setLevel(logging.ERROR)  # it advertises packages for notebooks


def _init_quietly() -> None:
    with _quiet_core():
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def place_message(what: str) -> str:
    """What Ray's queue is waited for, and what is free on the cluster."""
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    return f"waiting for {what}; free are {free.get('GPU', 0):g} GPUs and {free.get('CPU', 0):g} CPUs of the cluster"


def _end_executions() -> None:
    """End Ray Data's threads for a dataset that wasn't read to its end.

    A thread that calls Ray after its shutdown makes Ray end this process, without a message and with exit code 1.
    """
    from ray.data._internal.execution.streaming_executor import StreamingExecutor  # no public interface tells

    for thread in threading.enumerate():
        if isinstance(thread, StreamingExecutor):
            thread.shutdown(force=False)
    deadline = time.monotonic() + _THREADS_END_S
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))


def check_stopped() -> None:
    """Raise `KeyboardInterrupt` if a stop was requested: one that was raised inside a callback of Ray's is lost there."""
    if _stop_requested.is_set():
        raise KeyboardInterrupt


def _stop(signum: int, frame: object) -> None:
    _stop_requested.set()
    raise KeyboardInterrupt


@contextlib.contextmanager
def _quiet_core() -> Iterator[None]:
    """Silence Ray's core in this process on standard error, for a start in this block.

    It would report as an error, in the middle of our progress line, that Ray Data's actors get their arguments from the
    object store. When its log level is lowered it first prints the new level, so standard error is redirected as well.
    """
    if "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    try:
        with open(os.devnull, "wb") as devnull:
            os.dup2(devnull.fileno(), 2)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        del os.environ["RAY_BACKEND_LOG_LEVEL"]
