"""A cluster on this machine that Ray's own autoscaler makes larger and smaller: its nodes are raylets.

Uses the node provider of Ray's own tests. `ray.cluster_utils.AutoscalingCluster` can't be used: it needs a file
that Ray's package leaves out, and ends every Ray on the machine.
"""

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
import yaml

from tests.support.endpoints import wait
from tests.support.local_ray import end_ray

_HEAD = "f" * 51 + "00000"  # the provider counts its nodes from here
_PORT = 23991  # beyond those that Ray gives to workers
_IDLE_S = 10.0
_NOT_USED_HERE: dict[str, Any] = {
    **{f"{what}setup_commands": [] for what in ("", "head_", "worker_")},
    **{name: [] for name in ("initialization_commands", "head_start_ray_commands", "worker_start_ray_commands")},
    **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    "auth": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
}


@dataclass(frozen=True)
class Growing:
    """A cluster under way."""

    address: str
    folder: Path

    def workers(self) -> list[str]:
        """The ids of its nodes that aren't the head."""
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return [node["NodeID"] for node in nodes if node["Alive"] and node["NodeID"] != _HEAD]

    def take(self, node: str) -> None:
        """Kill a node, as a cloud ends a spot instance whose notice nobody read."""
        (raylet,) = [process for process in _processes(self.folder) if _is_raylet_of(process, node)]
        raylet.kill()


@contextlib.contextmanager
def growing(folder: Path, most: int, node: dict[str, int]) -> Iterator[Growing]:
    """A head without GPUs, and none to `most` nodes of `node`'s resources. `folder` has a short name."""
    end_ray()
    address = f"127.0.0.1:{_PORT}"
    folder.mkdir(parents=True)
    config = folder / "autoscaling.yaml"
    config.write_text(yaml.safe_dump(_config(address, most, node)))
    environment = os.environ | {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_TMPDIR": str(folder)}
    environment |= {
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": _HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD,
    }
    environment["RAY_health_check_period_ms"] = "500"  # a node is dead after five that failed: 2.5 s instead of 15
    environment.pop("RAY_ADDRESS", None)
    start = [
        str(Path(sys.executable).parent / "ray"),
        "start",
        "--head",
        "--block",
        f"--port={_PORT}",
        f"--temp-dir={folder}",
    ]
    size = ["--num-cpus=2", "--num-gpus=0", "--include-dashboard=false", f"--object-store-memory={200 * 2**20}"]
    with (folder / "head.log").open("w") as log:
        head = subprocess.Popen(
            [*start, *size, f"--autoscaling-config={config}"], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait(lambda: _joined(address))
        yield Growing(address, folder)
    finally:
        ray.shutdown()
        head.kill()  # told to end, it takes half a minute
        head.wait()
        remaining = list(_processes(folder))  # the head's, and the provider's raylets, which are nobody's children
        for process in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(remaining, timeout=60)


def _joined(address: str) -> bool:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        return False
    return True


def _processes(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["cmdline"]):
        if str(folder) in " ".join(process.info["cmdline"] or []) and process.pid != os.getpid():
            yield process


def _is_raylet_of(process: psutil.Process, node: str) -> bool:
    return process.name() == "raylet" and process.environ().get("RAY_OVERRIDE_NODE_ID_FOR_TESTING") == node


def _config(address: str, most: int, node: dict[str, int]) -> dict[str, Any]:
    worker = {"resources": node, "node_config": {}, "min_workers": 0, "max_workers": most}
    head = {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0}
    return {
        **_NOT_USED_HERE,
        "cluster_name": "growing",
        "max_workers": most,
        "upscaling_speed": 100,
        "idle_timeout_minutes": _IDLE_S / 60,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": address,
            "head_node_id": _HEAD,
            "launch_multiple": True,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {"ray.head.default": head, "worker": worker},
    }
