"""The GPUs of an engine: on one node, requested by its actor, or on several nodes, in a placement group.

An engine of one pipeline stage is on one node: its actor's `num_gpus` say everything. One of several stages may span nodes:
it gets a placement group of its own, in which each tensor-parallel group is on one node, and vLLM's Ray executor starts a
worker in each bundle. Its actor requests no GPU, but is put on a node that has some, because the engine's process there
reads the type of card. If that node has room, it is one of the group's.

Ray doesn't free a placement group that an actor created when the actor dies: `sweep` frees those of actors that are gone.
"""

import functools
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray._private.state import state as ray_state
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from actors.capacity.cards import CARDS
from actors.capacity.layout import BYTES, Layout, need, precision_of, smallest_layout
from actors.capacity.sizes import quantisation, size_of_model
from actors.engine import fork_server
from actors.errors import EngineError, ModelError, SettingsError
from actors.reward_model import RewardModel
from actors.settings.replica import EngineSettings

_NAME = "assay-engine"  # begins the names of our placement groups
_NODE = "ray.io/node-id"  # the label that Ray gives each node
_CARD = "accelerator_type:"  # begins the name of the resource that says a node's type of card
_CARDS = {"H100": CARDS["H100"], "A100-80G": CARDS["A100"], "H200": CARDS["H200"], "B200": CARDS["B200"]}
_LARGEST = {"H100": CARDS["H100-NVL"].memory}  # which Ray calls the same
# Arguments of vLLM by which a card may hold less than a checkpoint's weights in their precision.
_LIGHTENS = frozenset(
    {"quantization", "quantization_config", "load_format", "hf_overrides", "cpu_offload_gb", "offload_group_size"}
)
# Seconds that GPUs whose last engine is just ending are waited for without a message, and seconds that a request for GPUs
# stays open before the nodes are checked again.
_QUIET_S, _ASK_FOR_S = 10.0, 10.0
# Seconds to wait for a group whose GPUs were free a moment ago; if it isn't ready then, another engine has taken them.
_READY_S = 30.0


@dataclass(frozen=True)
class Placement:
    """GPUs that an engine has for itself, until they are given back."""

    group: PlacementGroup

    def release(self) -> None:
        remove_placement_group(self.group)


def cluster_gpus() -> int:
    """All GPUs of the cluster."""
    return int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]


def engine_gpus(settings: EngineSettings) -> int:
    """GPUs that an engine takes, of all its nodes together; 0 in a cluster without GPUs that doesn't autoscale."""
    if not ray.is_initialized() or settings.engine != "vllm":
        return 0
    return _layout(settings).gpus if settings.autoscaled or cluster_gpus() else 0


def actor_options(settings: EngineSettings) -> dict[str, Any]:
    """Ray's options for the actor of an engine: its GPUs, or a node that has some, and how its process starts."""
    options: dict[str, Any] = {}
    gpus = engine_gpus(settings)
    if settings.engine == "vllm" and (variables := fork_server.actor_environment()):
        options["runtime_env"] = {"env_vars": variables}
    if gpus and settings.pipeline_parallel == 1:
        options["num_gpus"] = gpus
    elif gpus:
        # Nodes without a GPU are excluded, and those with one not named, so that nodes that join later qualify.
        bare = sorted(node for node, resources in _node_resources().items() if not resources.get("GPU"))
        if bare:
            options["label_selector"] = {_NODE: f"!in({','.join(bare)})"}
    return options


def check(settings: EngineSettings) -> None:
    """Raise `EngineError`, naming what is missing, if the cluster hasn't the nodes that a layout needs."""
    if not engine_gpus(settings) or settings.autoscaled:
        return
    layout, gpus = _layout(settings), {node: resources.get("GPU", 0.0) for node, resources in _node_resources().items()}
    if nodes_for(layout, gpus) is None:
        raise EngineError(f"{layout} needs {_needed_gpus(layout)}, and the cluster has {_node_counts(gpus)}")


def check_memory(settings: EngineSettings, model: RewardModel) -> None:
    """Raise `SettingsError`, with the arithmetic, if a model can't fit the cluster's cards in its layout.

    Only a certain misfit is an error: the weights alone are more than the largest card has. What can't be known passes:
    autoscaled nodes, cards that aren't in `_CARDS`, models of unknown size, quantised models, and engines by whose arguments
    a card holds less.
    """
    if not engine_gpus(settings) or settings.autoscaled:
        return
    nodes = [resources for resources in _node_resources().values() if resources.get("GPU")]
    cards = {_card_of(node) for node in nodes}
    if not cards <= _CARDS.keys() or _LIGHTENS & settings.engine_args.keys():
        return
    try:
        size = size_of_model(model.model)
        if quantisation(model.checkpoint) is not None:
            return
    except (SettingsError, ModelError):
        return
    per_node = int(max(node["GPU"] for node in nodes))
    parameter_bytes = BYTES[precision_of(model.dtype)]
    usual = max(_CARDS[card].memory for card in cards)
    largest = max(_LARGEST.get(card, usual) for card in cards)
    of_layout = functools.partial(need, size, _layout(settings), model.context, parameter_bytes=parameter_bytes)
    if not of_layout(gpu_bytes=largest).can_fit:
        better = smallest_layout(size, model.context, parameter_bytes=parameter_bytes, gpu_bytes=usual, per_node=per_node)
        raise SettingsError(f"{model.model} can't fit. {of_layout(gpu_bytes=usual)}. This does: {better}")


def wait_for_room(settings: EngineSettings, model: RewardModel, waiting: Callable[[str], None]) -> None:
    """Wait until there is room for an engine, so that the first of the actors that are created next can start.

    Called by the driver; `waiting` is called with a message. Raises `SettingsError` if the model can't fit, and
    `EngineError` if the cluster doesn't have the nodes, or had no room within `placement_timeout_s`.
    """
    check_memory(settings, model)
    check(settings)
    if not engine_gpus(settings):
        return
    layout, start = _layout(settings), time.monotonic()
    if _find_room(layout, min(_QUIET_S, settings.placement_timeout_s)):
        return
    free = _node_counts(_free_gpus())
    waiting(f"waiting up to {settings.placement_timeout_s:.0f} s for {_needed_gpus(layout)}; free are {free}")
    while not _find_room(layout, min(_ASK_FOR_S, settings.placement_timeout_s)):
        if time.monotonic() > start + settings.placement_timeout_s:
            raise _timeout_error(settings)
        sweep()
        check(settings)


def place(settings: EngineSettings) -> Placement | None:
    """Create the placement group of an engine that needs one; called in its actor. None for any other engine.

    Waits for GPUs that are in use or that autoscaling adds. Raises `EngineError` if the cluster doesn't have the nodes, or
    if the GPUs weren't free within `placement_timeout_s`.
    """
    if not engine_gpus(settings) or settings.pipeline_parallel == 1:
        return None
    # The engine core is a process of its own, and connects to Ray by itself.
    os.environ.setdefault("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    layout, own_node = _layout(settings), ray.get_runtime_context().get_node_id()
    if not _node_resources()[own_node].get("GPU"):  # a node that joined after `actor_options` listed those to exclude
        raise EngineError(f"an engine of {layout} was started on node {own_node}, which has no GPU; start it again")
    deadline = time.monotonic() + settings.placement_timeout_s
    while True:
        sweep()  # in each round: it takes Ray a moment to notice that an actor is gone
        check(settings)
        # First a group without a choice of nodes, which waits (and makes autoscaling add nodes), only to learn where there
        # is room; then the real one, on nodes of our choice. In between another engine may be quicker: then again.
        nodes = with_node(own_node, _find_room(layout, min(_ASK_FOR_S, settings.placement_timeout_s)), layout, _free_gpus())
        if nodes and (group := _create_group(layout, nodes)) is not None:
            return Placement(group)
        if time.monotonic() > deadline:
            raise _timeout_error(settings)


def nodes_for(layout: Layout, gpus: Mapping[str, float]) -> list[str] | None:
    """The node of each tensor-parallel group, on as few nodes as possible; None if there isn't room.

    `gpus` has the GPUs of each node. Nodes with the most room are filled first.
    """
    room = sorted(((int(count) // layout.tensor_parallel, node) for node, count in gpus.items()), reverse=True)
    nodes = [node for groups, node in room for _ in range(groups)][: layout.pipeline_parallel]
    return nodes if len(nodes) == layout.pipeline_parallel else None


def with_node(own_node: str, nodes: Sequence[str], layout: Layout, free: Mapping[str, float]) -> list[str]:
    """The nodes of an engine, with its own among them if that has room, so that the first stage runs beside the engine.

    `free` has the free GPUs of each node. The own node comes first, in the place of the last of `nodes`.
    """
    groups = int(free.get(own_node, 0.0)) // layout.tensor_parallel
    if own_node in nodes or not nodes:
        return list(nodes)
    return ([own_node] * groups + list(nodes))[: layout.pipeline_parallel]


def sweep(killed: Collection[str] = ()) -> None:
    """Remove the placement groups of actors that are gone, or were `killed` just now, which Ray notices a moment later."""
    for group_id, group in placement_group_table().items():
        kind, _, owner = group["name"].partition(":")
        actor = owner.partition(":")[0]
        if kind == _NAME and group["state"] != "REMOVED" and (actor in killed or not _is_owner_alive(actor)):
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group_id))))


def _find_room(layout: Layout, wait_s: float) -> list[str]:
    """Request room for an engine for `wait_s` seconds, and release it: the node of each tensor-parallel group, or nothing.

    A waiting group is what makes an autoscaler add nodes. It also gets GPUs as soon as they are free, while the free
    resources that Ray reports are behind by a moment.
    """
    bundles = [{"GPU": float(layout.tensor_parallel)}] * layout.pipeline_parallel
    group = placement_group(bundles, strategy="PACK", name=_name())
    try:
        return list(placement_group_table(group)["bundles_to_node_id"].values()) if group.wait(wait_s) else []
    finally:
        remove_placement_group(group)


def _timeout_error(settings: EngineSettings) -> EngineError:
    layout, free = _layout(settings), _node_counts(_free_gpus())
    return EngineError(f"{layout} waited {settings.placement_timeout_s:.0f} s for {_needed_gpus(layout)}; free are {free}")


def _layout(settings: EngineSettings) -> Layout:
    return Layout(settings.tensor_parallel, settings.pipeline_parallel)


def _name() -> str:
    # The name of a new group, by which `sweep` finds its actor; empty in a driver, whose groups Ray frees by itself.
    actor = ray.get_runtime_context().get_actor_id()
    return f"{_NAME}:{actor}:{secrets.token_hex(4)}" if actor else ""


def is_wanted(actor: str) -> bool:
    """Whether an actor is alive, being created or being restarted."""
    return bool(ray_state.actor_table(actor, None, None).get("State") in ("ALIVE", "PENDING_CREATION", "RESTARTING"))


def _is_owner_alive(actor: str) -> bool:
    # Whether a group's actor still uses it. A group of the calling actor is from an earlier process of it: not used.
    return actor != ray.get_runtime_context().get_actor_id() and is_wanted(actor)


def _create_group(layout: Layout, nodes: Sequence[str]) -> PlacementGroup | None:
    """A group with its bundles on these nodes; None if another engine took the GPUs first."""
    expected = [node for node in nodes for _ in range(layout.tensor_parallel)]
    selectors = [{_NODE: node} for node in expected]
    group = placement_group([{"GPU": 1.0} for _ in expected], strategy="PACK", name=_name(), bundle_label_selector=selectors)
    if not group.wait(_READY_S):
        remove_placement_group(group)
        return None
    actual = Counter(placement_group_table(group)["bundles_to_node_id"].values())
    if actual != Counter(expected):
        remove_placement_group(group)
        raise EngineError(f"Ray placed {layout} as {dict(actual)}, and not on {dict(Counter(expected))}")
    return group


def _card_of(node: Mapping[str, float]) -> str:
    return next((name.removeprefix(_CARD) for name in node if name.startswith(_CARD)), "")


def _needed_gpus(layout: Layout) -> str:
    return (
        f"{layout.tensor_parallel} GPU{'s' * (layout.tensor_parallel > 1)} of one node"
        if layout.pipeline_parallel == 1
        else f"{layout.pipeline_parallel} times {layout.tensor_parallel} GPUs, each time of one node"
    )


def _node_counts(gpus: Mapping[str, float]) -> str:
    nodes = Counter(int(count) for count in gpus.values() if count)
    return ", ".join(f"{count} node{'s' * (count > 1)} with {size}" for size, count in sorted(nodes.items())) or "no GPU"


def _free_gpus() -> dict[str, float]:
    free: Mapping[str, Any] = available_resources_per_node()  # type: ignore[no-untyped-call]
    return {node: resources.get("GPU", 0.0) for node, resources in free.items()}


def _node_resources() -> dict[str, Any]:
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
