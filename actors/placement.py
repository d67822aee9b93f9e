"""Where the GPUs of an engine are: on one node, which the actor asks Ray for, or on several, in a placement group.

An engine of one pipeline stage is on a node, and its actor's `num_gpus` are all there is to say. One of several stages may
span nodes: it gets a placement group of its own, in which each tensor-parallel group is on one node, and vLLM's own Ray
executor starts a worker in each bundle.

A group that was got in an actor isn't freed when the actor dies: `sweep` frees those of actors that are gone.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray._private.state import state as ray_state
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from actors.errors import EngineError
from actors.layout import Layout
from actors.settings import EngineSettings

_NAME = "assay-engine"
_NODE = "ray.io/node-id"  # the label that Ray gives each node
_LOOK_EVERY_S = 1.0
_READY_S = 30.0
"""A group whose GPUs were free a moment ago is ready at once, or somebody was quicker."""


@dataclass(frozen=True)
class Placement:
    """GPUs that an engine has for itself, until they are given back."""

    group: PlacementGroup

    def release(self) -> None:
        """Give them back."""
        remove_placement_group(self.group)


def cluster_gpus() -> int:
    """All GPUs of the cluster."""
    return int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]


def engine_gpus(settings: EngineSettings) -> int:
    """GPUs that an engine takes; none where there are none."""
    if not ray.is_initialized():
        return 0
    return settings.tensor_parallel * settings.pipeline_parallel if settings.engine == "vllm" and cluster_gpus() else 0


def actor_gpus(settings: EngineSettings) -> int:
    """GPUs that the actor of an engine asks Ray for: all of the engine's, or none if they are in a placement group."""
    return 0 if settings.pipeline_parallel > 1 else engine_gpus(settings)


def check(settings: EngineSettings) -> None:
    """Raise `EngineError`, naming what is missing, if the cluster hasn't the nodes that a layout needs."""
    if engine_gpus(settings):
        layout = Layout(settings.tensor_parallel, settings.pipeline_parallel)
        _check(layout, {node: own.get("GPU", 0.0) for node, own in _totals().items()})


def place(settings: EngineSettings) -> Placement | None:
    """Get the GPUs of an engine that needs a placement group; called in its actor. None for any other.

    Waits for GPUs that others have. Raises `EngineError` if the cluster hasn't the nodes at all, or if the GPUs weren't
    free within `placement_timeout_s`.
    """
    if not engine_gpus(settings) or settings.pipeline_parallel == 1:
        return None
    sweep()
    # The engine core is a process of its own, and connects to Ray by itself.
    os.environ.setdefault("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    layout = Layout(settings.tensor_parallel, settings.pipeline_parallel)
    name = f"{_NAME}:{ray.get_runtime_context().get_actor_id()}"
    deadline = time.monotonic() + settings.placement_timeout_s
    while True:
        check(settings)
        free = {node: own.get("GPU", 0.0) for node, own in _free().items()}
        nodes = nodes_for(layout, free)
        if nodes is not None and (group := _placed(layout, nodes, name)) is not None:
            return Placement(group)
        if time.monotonic() > deadline:
            raise EngineError(
                f"{layout} waited {settings.placement_timeout_s:.0f} s for {_groups(layout)}; free are {_listed(free)}"
            )
        time.sleep(_LOOK_EVERY_S)


def nodes_for(layout: Layout, gpus: Mapping[str, float]) -> list[str] | None:
    """The node of each tensor-parallel group, on as few nodes as there can be; None if there isn't room."""
    room = sorted(((int(count) // layout.tensor_parallel, node) for node, count in gpus.items()), reverse=True)
    nodes = [node for groups, node in room for _ in range(groups)][: layout.pipeline_parallel]
    return nodes if len(nodes) == layout.pipeline_parallel else None


def sweep() -> None:
    """Free the GPUs of engines whose actors are gone."""
    for group_id, group in placement_group_table().items():
        kind, _, actor = group["name"].partition(":")
        if kind == _NAME and group["state"] != "REMOVED" and not _alive(actor):
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group_id))))


def _alive(actor: str) -> bool:
    if actor == ray.get_runtime_context().get_actor_id():
        return False  # an earlier process of the actor that asks
    return bool(ray_state.actor_table(actor, None, None).get("State") in ("ALIVE", "PENDING_CREATION", "RESTARTING"))


def _placed(layout: Layout, nodes: Sequence[str], name: str) -> PlacementGroup | None:
    """A group with its bundles on these nodes; None if somebody else was quicker."""
    where = [node for node in nodes for _ in range(layout.tensor_parallel)]
    group = placement_group(
        [{"GPU": 1.0} for _ in where], strategy="PACK", name=name, bundle_label_selector=[{_NODE: node} for node in where]
    )
    if not group.wait(_READY_S):
        remove_placement_group(group)
        return None
    there = Counter(placement_group_table(group)["bundles_to_node_id"].values())
    if there != Counter(where):
        remove_placement_group(group)
        raise EngineError(f"Ray placed {layout} as {dict(there)}, and not on {dict(Counter(where))}")
    return group


def _check(layout: Layout, gpus: Mapping[str, float]) -> None:
    if nodes_for(layout, gpus) is None:
        raise EngineError(f"{layout} needs {_groups(layout)}, and the cluster has {_listed(gpus)}")


def _groups(layout: Layout) -> str:
    return (
        f"{layout.tensor_parallel} GPUs of one node"
        if layout.pipeline_parallel == 1
        else f"{layout.pipeline_parallel} times {layout.tensor_parallel} GPUs, each time of one node"
    )


def _listed(gpus: Mapping[str, float]) -> str:
    nodes = Counter(int(count) for count in gpus.values() if count)
    return ", ".join(f"{count} node{'s' * (count > 1)} with {own}" for own, count in sorted(nodes.items())) or "no GPU"


def _free() -> dict[str, Any]:
    return dict(available_resources_per_node())  # type: ignore[no-untyped-call]


def _totals() -> dict[str, Any]:
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
