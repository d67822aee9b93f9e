"""Ray's workers as forks of one process: what they must share, and what they mustn't."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import ray
from ray._raylet import ObjectID

from actors.engine import fork_server
from pipelines.run.runtime.private_ray import ray_worker
from tests.conftest import REPOSITORY
from tests.support.engines import running, until
from tests.support.processes import family

PRELOADED = """
import importlib, os, sys, threading
from pipelines.run.runtime.private_ray.ray_worker import MODULES, _without_identifiers
importlib.import_module(MODULES[0])
with _without_identifiers():
    for name in MODULES:
        importlib.import_module(name)
    from ray._raylet import ObjectID
    for _ in range(2):
        if os.fork() == 0:
            print(ObjectID.from_random().hex(), flush=True)
            os._exit(0)
        os.wait()
print(threading.active_count(), *({"torch", "vllm"} & sys.modules.keys()))
"""

ENDED = """
import os, ray
from pipelines.run.runtime.session import ray_session
with ray_session():
    print(ray.get(ray.remote(lambda: os.getppid()).remote()))
"""


KILLED = """
import os, ray, sys, time
from actors.engine import fork_server
from pipelines.run.runtime.session import ray_session

class Worker:
    def facts(self):
        return os.getpid(), os.getppid(), os.environ["RAY_RAYLET_PID"], "vllm" in sys.modules

with ray_session(with_vllm=True):
    worker = ray.remote(Worker).options(runtime_env={"env_vars": fork_server.actor_environment()}).remote()
    print(*ray.get(worker.facts.remote()), os.environ[fork_server.SWITCH].partition(":")[0], flush=True)
    sys.stdin.read()
    os._exit(0)
"""

LEAVES = """
import atexit, pathlib, ray, sys, time
from actors.engine import fork_server
from pipelines.run.runtime.session import ray_session

class Worker:
    def __init__(self, path):
        atexit.register(pathlib.Path(path).write_text, "ended in order")
    def vllm(self):
        return "vllm" in sys.modules

with ray_session(with_vllm=True):
    worker = ray.remote(Worker).options(runtime_env={"env_vars": fork_server.actor_environment()}).remote(sys.argv[1])
    print(ray.get(worker.vllm.remote()))
    del worker
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
"""


class Facts(NamedTuple):
    """What a worker tells of itself."""

    pid: int
    parent: int
    group: int
    numbers: tuple[float, float]
    title: str
    variable: str | None
    has_vllm: bool
    identifier: str


class Worker:
    def facts(self) -> Facts:
        numbers = (random.random(), float(np.random.random()))
        title = Path("/proc/self/cmdline").read_text().rstrip("\0")
        return Facts(
            os.getpid(),
            os.getppid(),
            os.getpgrp(),
            numbers,
            title,
            os.environ.get("ASSAY_OF_ITS_OWN"),
            "vllm" in sys.modules,
            ObjectID.from_random().hex(),
        )

    def logging_of_vllm(self) -> tuple[str, str]:
        (handler,) = logging.getLogger("vllm").handlers
        assert isinstance(handler, logging.StreamHandler)
        return logging.getLevelName(handler.level), handler.stream.name


def actors(count: int, **options: Any) -> list[Any]:
    remote: Any = ray.remote(Worker)
    return [remote.options(num_cpus=0, **options).remote() for _ in range(count)]


def output_of(program: str, *arguments: str, **variables: str) -> list[str]:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.split()


def test_what_is_imported_before_the_fork_leaves_workers_identifiers_of_their_own() -> None:
    """Two workers with equal identifiers end each other: seen whenever ray.data was imported without the guard."""
    first, second, threads, *heavy = output_of(PRELOADED)
    assert first != second
    assert (threads, heavy) == ("1", [])


@pytest.mark.usefixtures("local_ray")
def test_workers_are_forks_of_one_process_and_share_no_group_and_no_random_numbers() -> None:
    workers = actors(3)
    facts: list[Facts] = ray.get([worker.facts.remote() for worker in workers])
    assert len({worker.pid for worker in facts}) == len({worker.group for worker in facts}) == 3
    assert len({worker.identifier for worker in facts}) == 3
    assert len({worker.parent for worker in facts}) == 1
    below = {process.pid for process in family(psutil.Process())}
    assert below >= {facts[0].parent, *(worker.pid for worker in facts)}, "tests that kill workers must find them"
    assert facts[0].parent not in (1, os.getpid())
    for kind in range(2):
        assert len({worker.numbers[kind] for worker in facts}) == 3
    assert {worker.title for worker in facts} == {"ray::Worker.facts"}
    for worker in workers:
        ray.kill(worker)


@pytest.mark.usefixtures("local_ray")
def test_a_worker_that_ends_leaves_the_others_and_their_server_alive() -> None:
    doomed, other = actors(2)
    before: list[Facts] = ray.get([doomed.facts.remote(), other.facts.remote()])
    ray.kill(doomed)
    until(lambda: not running(before[0].pid))
    (later,) = actors(1)
    after: list[Facts] = ray.get([other.facts.remote(), later.facts.remote()])
    assert [worker.parent for worker in after] == [before[0].parent] * 2
    for worker in (other, later):
        ray.kill(worker)


@pytest.mark.usefixtures("local_ray")
def test_a_worker_with_variables_of_its_own_is_started_as_ray_does() -> None:
    (forked,) = actors(1)
    (actor,) = actors(1, runtime_env={"env_vars": {"ASSAY_OF_ITS_OWN": "here"}})
    facts: list[Facts] = ray.get([forked.facts.remote(), actor.facts.remote()])
    assert [worker.variable for worker in facts] == [None, "here"]
    assert facts[1].parent != facts[0].parent
    for worker in (forked, actor):
        ray.kill(worker)


@pytest.mark.usefixtures("local_ray")
def test_workers_for_engines_are_forks_of_the_process_that_has_imported_vllm() -> None:
    for_engine = fork_server.actor_environment()
    assert for_engine == ray_worker._FOR_ENGINE
    workers = [*actors(2, runtime_env={"env_vars": for_engine}), *actors(1)]
    facts: list[Facts] = ray.get([worker.facts.remote() for worker in workers])
    server = int(os.environ[fork_server.SWITCH].partition(":")[0])
    assert [worker.parent == server for worker in facts] == [True, True, False]
    assert [worker.has_vllm for worker in facts] == [True, True, False]
    assert len({worker.group for worker in facts} - {os.getpgid(server)}) == 3
    assert len({worker.identifier for worker in facts}) == 3
    for kind in range(2):
        assert len({worker.numbers[kind] for worker in facts}) == 3
    assert {worker.title for worker in facts} == {"ray::Worker.facts"}
    assert ray.get(workers[0].logging_of_vllm.remote()) == ("WARNING", "<stderr>")
    for worker in workers:
        ray.kill(worker)
    until(lambda: not any(running(worker.pid) for worker in facts))
    assert running(server)


@pytest.mark.usefixtures("local_ray")
def test_a_worker_for_an_engine_is_started_as_ray_does_where_that_process_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_server.SWITCH, "1073741824:nowhere")
    assert fork_server.actor_environment() == {}
    with pytest.raises(ConnectionError, match="no shared server"):
        fork_server.fork_worker(print, "never")
    monkeypatch.setattr(ray_worker, "_may_be_forked", lambda arguments: True)
    started: list[Any] = []
    monkeypatch.setattr(ray_worker, "_start_as_ray_does", started.append)
    arguments = [f"--serialized-runtime-env-context={json.dumps({'env_vars': ray_worker._FOR_ENGINE})}"]
    ray_worker.main(arguments)
    assert started == [arguments]


@pytest.mark.long
def test_a_worker_for_an_engine_ends_with_its_raylet(tmp_path: Path) -> None:
    """Ray's library in it was loaded before there was one."""
    command = [sys.executable, "-c", KILLED]
    environment = os.environ | {fork_server.SWITCH: fork_server.share()}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        worker, parent, raylet, has_vllm, server = process.stdout.readline().decode().split()
        assert (parent, has_vllm) == (server, "True")
        os.kill(int(raylet), signal.SIGKILL)
        until(lambda: not running(int(worker)))
        process.kill()
    assert running(int(server)), "it is ours"


@pytest.mark.long
def test_a_worker_for_an_engine_ends_as_an_interpreter_does(tmp_path: Path) -> None:
    assert output_of(LEAVES, str(tmp_path / "file"), **{fork_server.SWITCH: fork_server.share()}) == ["True"]
    assert (tmp_path / "file").read_text() == "ended in order"


@pytest.mark.long
def test_the_server_ends_with_its_ray() -> None:
    (server,) = output_of(ENDED)
    until(lambda: not running(int(server)))


@pytest.mark.long
def test_workers_start_where_packages_in_home_folders_are_switched_off() -> None:
    """Ray then puts `-s` before the program of a worker: seen on a GPU machine, where every worker died and runs waited."""
    (server,) = output_of(ENDED, PYTHONNOUSERSITE="1")
    until(lambda: not running(int(server)))


@pytest.mark.long
def test_a_variable_has_workers_started_as_ray_does() -> None:
    (parent,) = output_of(ENDED, **{ray_worker.SWITCH: "0"})
    until(lambda: not running(int(parent)))  # the raylet's, not ours


@pytest.mark.parametrize(
    ("context", "forked"),
    [
        ("{}", True),
        ('{"env_vars": {"ASSAY_ENGINE_ACTOR": "1"}}', True),
        ('{"env_vars": {"ASSAY_ENGINE_ACTOR": "1", "A": "1"}}', False),
        ('{"command_prefix": [], "env_vars": {}, "py_executable": null}', True),
        ('{"env_vars": {"A": "1"}}', False),
        ('{"py_executable": "/another/python"}', False),
        ('{"command_prefix": ["nice"]}', False),
    ],
)
def test_only_workers_that_are_like_the_others_are_forked(
    context: str, forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_RAYLET_PID", "1")
    arguments = [f"--serialized-runtime-env-context={context}", "--language=PYTHON"]
    assert ray_worker._may_be_forked(arguments) == forked
    assert not ray_worker._may_be_forked([*arguments, "--worker-type=SPILL_WORKER"])
    assert not ray_worker._may_be_forked(["-s", *arguments]), "this interpreter isn't the driver's, which has the flag"
    monkeypatch.delenv("RAY_RAYLET_PID")
    assert not ray_worker._may_be_forked(arguments)
