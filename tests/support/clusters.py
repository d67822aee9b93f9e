"""Clusters of several raylets on this machine, whose GPUs are only counted: vLLM computes on the CPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import ray_constants
from ray.cluster_utils import Cluster

from actors.engine import fork_server
from pipelines.run.runtime.private_ray import ray_worker
from tests.support.local_ray import end_ray

_STORE = {"object_store_memory": 200 * 2**20}
NO_DASHBOARD = {"include_dashboard": False, "dashboard_port": None}
"""Also without a port: Ray would check whether it is free, and leave that check's socket open where it isn't."""


@contextmanager
def cluster(head: Mapping[str, Any], *nodes: Mapping[str, Any], ray_executor: bool = False) -> Iterator[Any]:
    """A cluster of a head and nodes with these resources, to which the test and its processes connect.

    Its workers are forked, as those of a private Ray are: this machine's two cores would be busy with their imports.
    `ray_executor`: vLLM takes the CPU for GPUs, or its Ray executor wouldn't start there.
    """
    end_ray()
    server: Any = fork_server._Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_constants, "SETUP_WORKER_FILENAME", str(Path(ray_worker.__file__).resolve()))
        if ray_executor:  # vLLM reads it when it is imported
            patch.setenv("ASSAY_TESTS_LOGICAL_GPUS", "1")
            patch.setenv(fork_server.SWITCH, "")
            patch.setattr(fork_server, "_SERVER", server)
        patch.setenv(fork_server.SWITCH, fork_server.share())
        ray_cluster: Any = Cluster(initialize_head=True, head_node_args={**_STORE, **NO_DASHBOARD, **head})
        for node in nodes:
            add(ray_cluster, node)
        patch.setenv("RAY_ADDRESS", ray_cluster.address)
        ray.init(address=ray_cluster.address, log_to_driver=False)
        try:
            yield ray_cluster
        finally:
            ray.shutdown()
            ray_cluster.shutdown()
            if ray_executor:
                server._stop()


def add(ray_cluster: Any, node: Mapping[str, Any]) -> Any:
    """Add a node, which can be removed again; returns its handle."""
    return ray_cluster.add_node(**_STORE, **node)
