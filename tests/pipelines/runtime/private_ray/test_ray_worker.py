"""Ray's workers as forks of one process: what they must share, and what they mustn't."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import ray

from pipelines.runtime.private_ray import ray_worker
from tests.conftest import REPOSITORY
from tests.support.engines import running, until
from tests.support.processes import family

PRELOADED = """
import importlib, os, sys, threading
from pipelines.runtime.private_ray.ray_worker import MODULES, _without_identifiers
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
from pipelines.runtime.session import ray_session
with ray_session():
    print(ray.get(ray.remote(lambda: os.getppid()).remote()))
"""


class Facts(NamedTuple):
    """What a worker tells of itself."""

    pid: int
    parent: int
    group: int
    numbers: tuple[float, float]
    title: str
    variable: str | None


class Worker:
    def facts(self) -> Facts:
        numbers = (random.random(), float(np.random.random()))
        title = Path("/proc/self/cmdline").read_text().rstrip("\0")
        return Facts(os.getpid(), os.getppid(), os.getpgrp(), numbers, title, os.environ.get("ASSAY_OF_ITS_OWN"))


def actors(count: int, **options: Any) -> list[Any]:
    remote: Any = ray.remote(Worker)
    return [remote.options(num_cpus=0, **options).remote() for _ in range(count)]


def output_of(program: str, **variables: str) -> list[str]:
    command = [sys.executable, "-c", program]
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
    (own,) = actors(1, runtime_env={"env_vars": {"ASSAY_OF_ITS_OWN": "here"}})
    facts: list[Facts] = ray.get([forked.facts.remote(), own.facts.remote()])
    assert [worker.variable for worker in facts] == [None, "here"]
    assert facts[1].parent != facts[0].parent
    for worker in (forked, own):
        ray.kill(worker)


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
