"""Where a run's Ray is: the cluster that `RAY_ADDRESS` names (as under `ray job submit`), or a private one for this run."""

import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from actors.engine import fork_server
from pipelines.runtime import ray_files
from pipelines.runtime.ray_start import start_ray

_THREADS = ("StreamingExecutor-", "iter_threaded")
"""Ray Data's threads that ask Ray for something: the one that runs a dataset, and the one that fetches what comes out."""
_THREADS_END_S = 30.0
_told_to_stop = threading.Event()


@contextlib.contextmanager
def ray_session(with_vllm: bool = False) -> Iterator[None]:
    """A Ray to run on. One that is there already is used and left as it is.

    `with_vllm`: engines will be started on it. Beside the start of a private Ray vLLM is imported for them.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_ADDRESS" not in os.environ:
        # Ray guards a private cluster with a token. Without one from us it writes one into the user's home, which every
        # later `ray start` on this machine would then demand. RAY_AUTH_MODE is the user's to set.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if ray.is_initialized():
        yield
        return
    # "local", or Ray joins whatever cluster a neighbour left an address file for. Two CPUs at the least: with one, the
    # reading and the scoring would wait for each other for ever.
    private: dict[str, Any] = (
        {}
        if "RAY_ADDRESS" in os.environ
        else {"address": "local", "num_cpus": max(2, os.cpu_count() or 2), "include_dashboard": False}
    )
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {way: signal.getsignal(way) for way in (signal.SIGINT, signal.SIGTERM)}
    _told_to_stop.clear()
    if private and with_vllm:
        os.environ[fork_server.SWITCH] = fork_server.share()
    with _quiet_core():
        started = start_ray(log_to_driver=False, logging_level=logging.ERROR, **private)
    for way in before if in_main_thread else ():
        # Ray's own for SIGTERM prints a stack trace. A cluster's way to stop a job is the same as a person's.
        signal.signal(way, _stop)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it tells of every dataset's plan; an error is raised, too
    with ray_files.hold_folder(Path(started.address_info["session_dir"])) if private else contextlib.nullcontext():
        try:
            yield
        finally:
            _end_executions()
            ray.shutdown()
            for way, handler in before.items() if in_main_thread else ():
                signal.signal(way, handler)


def _end_executions() -> None:
    """End what Ray Data still does, in threads of its own, for a dataset that wasn't read to its end.

    One of them that asks Ray for something after its end makes Ray end this process, without a word and with exit code 1.
    """
    from ray.data._internal.execution.streaming_executor import StreamingExecutor  # nothing public says that they are done

    for thread in threading.enumerate():
        if isinstance(thread, StreamingExecutor):
            thread.shutdown(force=False)
    deadline = time.monotonic() + _THREADS_END_S
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(0.0, deadline - time.monotonic()))


def check_stopped() -> None:
    """Raise `KeyboardInterrupt` if the session was told to stop: one that was raised inside a callback is lost there."""
    if _told_to_stop.is_set():
        raise KeyboardInterrupt


def _stop(signum: int, frame: object) -> None:
    _told_to_stop.set()
    raise KeyboardInterrupt


@contextlib.contextmanager
def _quiet_core() -> Iterator[None]:
    """Start Ray's core in this process without its own words on standard error.

    It calls it an error that Ray Data's actors get their arguments from the object store, in the middle of our progress
    line; and told to say less, it first says what it was told.
    """
    if "RAY_BACKEND_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    sys.stderr.flush()
    shown = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        del os.environ["RAY_BACKEND_LOG_LEVEL"]
