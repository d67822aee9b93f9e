"""A Ray for all tests of a session, and small corpora."""

import os
from collections.abc import Iterator

import pytest
import ray

from actors.engine import fork_server
from pipelines.runtime.private_ray.ray_start import start_ray


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A private Ray of four logical CPUs, which every run in this process then uses."""
    os.environ[fork_server.SWITCH] = fork_server.share()
    start_ray(address="local", num_cpus=4, object_store_memory=300 * 2**20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
