"""The worker program of a private Ray: a worker is forked from a process that has already imported its modules.

By itself Ray starts an interpreter that imports Ray, which executes another one that imports it again: 0.9 s of CPU per
worker, and 1 to 2 s more for the imports of our steps. A forked worker takes 0.3 s. The first worker of a raylet leaves a
server process behind, which imports the modules that workers need one after another, and between imports forks the workers
that are requested. The server has no threads and no connection to Ray, doesn't initialise CUDA, and ends with its raylet.
Ray recognises a worker by the connection that it opens, so its parent process doesn't matter.

Three things must not be shared by forks:

- Ray's identifiers: C++ draws them from a generator that is seeded at its first use, so nothing may use it before the fork.
  Workers with equal identifiers end each other (`_without_identifiers`).
- Process groups: the raylet kills the whole group of a worker that ended, so each worker joins the group made for it.
- The state of Python's random generators.

The actor of an engine needs vLLM, whose import takes 7 s of CPU. On CPUs its worker is a fork of the process from which
vLLM's own processes are forked (`actors.engine.fork_server`), which has imported it, and Ray with it.

A worker that must differ from the others (another interpreter, its own environment variables) is started in Ray's way, and
so is every worker if the server doesn't answer. Linux only. Only the standard library is imported at the top, because this
module runs for each worker.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

SWITCH = "ASSAY_RAY_WORKERS"
"""An environment variable; 0 starts workers in Ray's way."""

MODULES = (
    "ray._private.workers.default_worker",
    "ray.data",
    "ray.data._internal.execution.operators.actor_pool_map_operator",
    "ray.data._internal.planner.plan_udf_map_op",
    "pipelines.run.scoring.score_step",
    "pipelines.run.sampling.sample_step",
    "actors.workers.policy_actor",
    "transformers.tokenization_utils_tokenizers",
    "jinja2.sandbox",
    "pyarrow.json",
    "pyarrow.csv",
    "pyarrow.parquet",
    "ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator",
    "ray.data._internal.stats",
    "ray.autoscaler._private.util",
    "pipelines.results.exports.export_job",
    "pipelines.results.filtering.filter_step",
    "pipelines.workflows.ensembles.combined_corpus",
)
"""Modules that our workers import, the most urgent first. None may import torch or vLLM."""

_ROOT = Path(__file__).resolve().parents[4]
_FOR_ENGINE = {"ASSAY_ENGINE_ACTOR": "1"}  # `fork_server.actor_environment`, without its import
_ANSWER_S = 60.0  # longer than a busy machine takes to import the slowest module, during which the server can't answer
_MAX_BYTES = 2**20  # of a request: arguments and environment
_CREDENTIALS = struct.Struct("3i")
# Flags of the driver's interpreter that Ray puts before the worker's program, with their names in `sys.flags`. A driver has
# `-s` by `PYTHONNOUSERSITE=1`, too, as on machines whose users keep packages in their home folders.
_SITE_FLAGS = {"-s": "no_user_site", "-S": "no_site"}
# The null job, as in workers that Ray starts before any job: a worker gets its job with its first task. Ray's library reads
# the variable when it is loaded, which is before the fork, so all forks must have the same value.
_JOB = {"RAY_JOB_ID": "ffffffff"}


class Request(NamedTuple):
    """What a worker starts with: the raylet's arguments and environment, the current folder and the process group.

    The group is the one that the raylet created for the worker, and kills when the worker has ended.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    group: int


def main(arguments: Sequence[str]) -> None:
    """Start a worker with the raylet's arguments. Returns at once here, and in the worker itself when its work is done."""
    # `request` stays None in the process that Ray started; in a forked worker it is that worker's request. Without forking
    # this function doesn't return: `_start_as_ray_does` replaces the process.
    request, forked = None, _may_be_forked(arguments)
    if forked:
        try:
            request = None if _is_for_engine(arguments) else _begin_server()
            if request is None:
                fork = _fork_with_vllm if _is_for_engine(arguments) else _request_worker
                fork(Request(list(arguments), dict(os.environ), os.getcwd(), os.getpgrp()))
        except OSError:
            forked = False
    if not forked:
        _start_as_ray_does(arguments)
    elif request is not None:
        _work(request)


def _start_as_ray_does(arguments: Sequence[str]) -> None:
    from ray._private.workers import setup_worker

    os.execv(sys.executable, [sys.executable, str(setup_worker.__file__), *arguments])


def _may_be_forked(arguments: Sequence[str]) -> bool:
    """Whether the worker is an ordinary Python worker without a runtime environment or an interpreter flag of its own."""
    neutral = {"py_executable": sys.executable, "env_vars": _FOR_ENGINE}
    changes = [name for name, value in _context(arguments).items() if value and value != neutral.get(name)]
    return (
        not changes
        and sys.platform == "linux"
        and os.environ.get(SWITCH) != "0"
        and bool(os.environ.get("RAY_RAYLET_PID"))
        and _value(arguments, "--language") == "PYTHON"
        and _value(arguments, "--worker-type") in (None, "WORKER")
        and all(getattr(sys.flags, _SITE_FLAGS[argument]) for argument in arguments if argument in _SITE_FLAGS)
    )


def _is_for_engine(arguments: Sequence[str]) -> bool:
    return _context(arguments).get("env_vars") == _FOR_ENGINE


def _context(arguments: Sequence[str]) -> dict[str, Any]:
    context: dict[str, Any] = json.loads(_value(arguments, "--serialized-runtime-env-context") or "{}")
    return context


def _value(arguments: Sequence[str], name: str) -> str | None:
    for argument in arguments:
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


def _address() -> str:
    """The server's address, in the abstract namespace: one server per user and raylet.

    Ray's library reads the raylet's process id when it is loaded, so a server can't serve workers of another raylet.
    """
    return f"\0assay-{os.getuid()}-{os.environ['RAY_RAYLET_PID']}"


def _request_worker(request: Request) -> None:
    """Request a worker from the server, with this process' standard streams. Raises `OSError` if it starts none."""
    with _socket() as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(_address())
        _check_peer(connection)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        if not connection.recv(1):
            raise ConnectionError("the server has started no worker")


def _fork_with_vllm(request: Request) -> None:
    """Fork a worker from the process that has imported vLLM, and end this one. Raises `OSError` if that process is gone."""
    sys.path[0] = str(_ROOT)
    import importlib

    from actors.engine import fork_server

    # By its own name: the forked process has no `__main__` of this file, in which a function of this module would be sought.
    module: Any = importlib.import_module("pipelines.run.runtime.private_ray.ray_worker")
    fork_server.fork_worker(module._work_as_child, module.Request(*request))
    os._exit(0)  # without waiting for it, as `multiprocessing` does


def _socket() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a request is one packet
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_BYTES)
    return connection


def _check_peer(connection: socket.socket) -> None:
    """Raise `PermissionError` unless the process at the other end belongs to the same user.

    Anyone may connect to an address in the abstract namespace, and a request carries an environment.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
        raise PermissionError("another user's process")


def _begin_server() -> Request | None:
    """Start a server, unless one is listening. Returns None in this process, and in each forked worker its request."""
    listener = _socket()
    try:
        listener.bind(_address())
    except OSError:  # a server is listening already
        listener.close()
        return None
    listener.listen(64)
    # Forked twice, so that the server isn't a child of this process, which ends with its worker's start.
    if (child := os.fork()) != 0:
        listener.close()
        os.waitpid(child, 0)
        return None
    if os.fork() != 0:
        os._exit(0)
    request = None
    try:
        request = _serve(listener)
    finally:  # in the server's process, also after an exception: it must not go on as a worker of Ray
        if request is None:
            os._exit(1)
    return request


def _serve(listener: socket.socket) -> Request | None:
    """Import modules and fork workers until the raylet ends. Returns the request in a worker, None in the server."""
    import gc
    import importlib
    import select

    os.setpgid(0, 0)  # out of the first worker's group, which the raylet kills when that worker ends
    raylet = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(devnull, number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the workers: nobody waits for them
    sys.path[0] = str(_ROOT)
    os.environ.update(_JOB)
    # With `gc.freeze` below: a collection in a worker would write to the headers of all inherited objects, and so copy the
    # pages that it shares with the server.
    gc.disable()
    with _without_identifiers():
        importlib.import_module(MODULES[0])
        remaining = list(MODULES[1:])
        while True:
            # Without a timeout only when everything is imported; before, a look for requests between two imports.
            ready, _, _ = select.select([listener.fileno(), raylet], [], [], 0 if remaining else None)
            if raylet in ready:
                return None
            if listener.fileno() in ready:
                gc.freeze()
                if request := _fork(listener):
                    os.close(raylet)
                    os.close(devnull)
                    break
            elif remaining:
                with contextlib.suppress(ImportError):
                    importlib.import_module(remaining.pop(0))
    gc.enable()
    return request


@contextlib.contextmanager
def _without_identifiers() -> Iterator[None]:
    """A block in which `@ray.remote` classes get their identifiers from `os.urandom` instead of Ray's generator."""
    import types

    from ray import actor
    from ray._raylet import ActorClassID

    substitute = types.SimpleNamespace(from_random=lambda: ActorClassID(os.urandom(ActorClassID.size())))
    vars(actor)["ActorClassID"] = substitute
    try:
        yield
    finally:
        vars(actor)["ActorClassID"] = ActorClassID


def _fork(listener: socket.socket) -> Request | None:
    """Accept a request and fork its worker. Returns the request in the worker, None in the server."""
    connection, _ = listener.accept()
    with connection:
        try:
            _check_peer(connection)
            content, outputs, _, _ = socket.recv_fds(connection, _MAX_BYTES, 3)
        except OSError:
            return None
        worker = bool(content) and os.fork() == 0  # empty where the requester has closed its end again
        if worker:
            listener.close()
            for number, output in enumerate(outputs):
                os.dup2(output, number)
        for output in outputs:
            os.close(output)
        if not worker:
            return None
        request = Request(*json.loads(content))
        os.setpgid(0, request.group)  # before the answer, at which the requester exits and its group would vanish
        connection.send(b"+")
    return request


def _work_as_child(request: Request) -> None:
    """In a process of `multiprocessing`, which ends without what Python does at an interpreter's end."""
    import atexit
    import threading

    from ray import _raylet

    rays_library, pythons_threads = cast("Any", _raylet), cast("Any", threading)
    os.setpgid(0, 0)  # out of the server's group; that of the raylet's process is gone with it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ.update(_JOB)
    rays_library.Config.initialize("")  # the library was loaded with the server's environment; this reads it again
    try:
        _work(request)
    finally:
        pythons_threads._shutdown()
        atexit._run_exitfuncs()


def _work(request: Request) -> None:
    """In the forked process: restore the requester's environment, folder and arguments, and run Ray's worker program."""
    import runpy

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    environment = request.environment | _JOB
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    os.chdir(request.folder)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # else all forks would draw the same numbers; Python's generator seeds itself after a fork
    setup = ("--serialized-runtime-env-context=", "--language=")
    # The interpreter has the site flags already.
    sys.argv = [argument for argument in request.arguments if argument not in _SITE_FLAGS and not argument.startswith(setup)]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
