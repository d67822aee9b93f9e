"""The program that a private Ray starts its workers with: a worker is a fork of a process that has imported already.

Ray starts an interpreter that imports Ray, which executes another that imports it again: 0.9 s of CPU for a worker, and 1 to
2 s more for what our steps import. Forked, it takes 0.3 s. The first worker of a raylet leaves a server behind. It imports
what workers need, one module after another, and forks the workers that are asked for in between. It has no threads and no
connection to Ray, doesn't initialise CUDA, and ends with its raylet. Ray knows a worker by the worker's own connection,
whoever its parent is.

What may not be shared by forks:

- Ray's identifiers, which C++ makes from a generator that begins at its first use: nothing may use it before the fork.
  Workers that make equal ones end each other (`_without_identifiers`).
- Process groups: the raylet ends the whole group of a worker that ended, so that each is in the group made for it.
- The state of random generators in Python.

A worker that is to be unlike the others (another interpreter, variables of its own) is started as Ray does, and so is each
one where the server doesn't answer. Linux only. At the top only the standard library is imported: this runs for each worker.
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
from typing import Any, NamedTuple

SWITCH = "ASSAY_RAY_WORKERS"
"""The environment variable: 0 starts workers as Ray does."""

MODULES = (
    "ray._private.workers.default_worker",
    "ray.data",
    "ray.data._internal.execution.operators.actor_pool_map_operator",
    "ray.data._internal.planner.plan_udf_map_op",
    "pipelines.scoring.score_step",
    "pipelines.sampling.sample_step",
    "actors.workers.policy_actor",
    "transformers.tokenization_utils_tokenizers",
    "jinja2.sandbox",
    "pyarrow.json",
    "pyarrow.csv",
    "pyarrow.parquet",
    "ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator",
    "ray.data._internal.stats",
    "ray.autoscaler._private.util",
    "pipelines.exports.export_job",
    "pipelines.filtering.filter_step",
    "pipelines.ensembles.combine_step",
)
"""What workers of ours import sooner or later, the most urgent first. None of it may bring torch or vLLM."""

_ANSWER_S = 60.0  # in which a busy machine imports the slowest of them
_MOST_BYTES = 2**20  # of a request: arguments and environment
_CREDENTIALS = struct.Struct("3i")
_JOB = {"RAY_JOB_ID": "ffffffff"}
"""No job, as for the workers that Ray starts before there is any: it gives each its job with the first task. Ray's library
reads this when it is loaded, so that forks can't differ in it."""


class Request(NamedTuple):
    """What a worker begins with."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    group: int
    """The process group that the raylet has made for it."""


def main(arguments: Sequence[str]) -> None:
    """Start a worker with these arguments of the raylet, and return; in the worker itself, when it has done its work."""
    request, forked = None, _may_be_forked(arguments)
    if forked:
        try:
            request = _begin_server()
            if request is None:
                _ask(Request(list(arguments), dict(os.environ), os.getcwd(), os.getpgrp()))
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
    context = json.loads(_value(arguments, "--serialized-runtime-env-context") or "{}")
    special = [name for name, value in context.items() if value and (name, value) != ("py_executable", sys.executable)]
    return (
        not special
        and sys.platform == "linux"
        and os.environ.get(SWITCH) != "0"
        and bool(os.environ.get("RAY_RAYLET_PID"))
        and _value(arguments, "--language") == "PYTHON"
        and _value(arguments, "--worker-type") in (None, "WORKER")
    )


def _value(arguments: Sequence[str], name: str) -> str | None:
    for argument in arguments:
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


def _address() -> str:
    """Where the server listens: it is for one raylet, whose process Ray's library looks for when it is loaded."""
    return f"\0assay-{os.getuid()}-{os.environ['RAY_RAYLET_PID']}"


def _ask(request: Request) -> None:
    """Have the server start the worker. Raises `OSError` if it doesn't."""
    with _socket() as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(_address())
        _check_peer(connection)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        if not connection.recv(1):
            raise ConnectionError("the server has started no worker")


def _socket() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a request is one packet
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    return connection


def _check_peer(connection: socket.socket) -> None:
    """Raise `PermissionError` unless the process at the other end is of the same user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
        raise PermissionError("another user's process")


def _begin_server() -> Request | None:
    """Leave a server behind, unless there is one. Returns in the process that asks and, with its request, in each worker."""
    listener = _socket()
    try:
        listener.bind(_address())
    except OSError:  # there is one
        listener.close()
        return None
    listener.listen(64)
    if (child := os.fork()) != 0:
        listener.close()
        os.waitpid(child, 0)
        return None
    if os.fork() != 0:
        os._exit(0)
    request = None
    try:
        request = _serve(listener)
    finally:  # neither the server nor a worker that can't begin may go on as the process that asked
        if request is None:
            os._exit(1)
    return request


def _serve(listener: socket.socket) -> Request | None:
    """Import and fork until the raylet ends. Returns a request in the worker that is to do it, None in the server."""
    import gc
    import importlib
    import select

    os.setpgid(0, 0)
    raylet = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks what the workers ended with
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    os.environ.update(_JOB)
    gc.disable()
    with _without_identifiers():
        importlib.import_module(MODULES[0])
        remaining = list(MODULES[1:])
        while True:
            ready, _, _ = select.select([listener.fileno(), raylet], [], [], 0 if remaining else None)
            if raylet in ready:
                return None
            if listener.fileno() in ready:
                gc.freeze()
                if request := _fork(listener):
                    os.close(raylet)
                    os.close(nowhere)
                    break
            elif remaining:
                with contextlib.suppress(ImportError):
                    importlib.import_module(remaining.pop(0))
    gc.enable()
    return request


@contextlib.contextmanager
def _without_identifiers() -> Iterator[None]:
    """A block in which classes become actors' classes without an identifier from Ray's generator."""
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
    """Fork the worker that is asked for. Returns its request in the worker, None in the server."""
    connection, _ = listener.accept()
    with connection:
        try:
            _check_peer(connection)
            content, outputs, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        except OSError:
            return None
        worker = bool(content) and os.fork() == 0
        if worker:
            listener.close()
            for number, output in enumerate(outputs):
                os.dup2(output, number)
        for output in outputs:
            os.close(output)
        if not worker:
            return None
        request = Request(*json.loads(content))
        os.setpgid(0, request.group)
        connection.send(b"+")
    return request


def _work(request: Request) -> None:
    """In the forked process: take over what the program was started with, and be Ray's worker."""
    import random
    import runpy

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    environment = request.environment | _JOB
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    os.chdir(request.folder)
    random.seed()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    setup = ("--serialized-runtime-env-context=", "--language=")
    sys.argv = [argument for argument in request.arguments if not argument.startswith(setup)]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
