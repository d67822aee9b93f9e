"""Engines side by side: what they held is free once they are ended."""

import pytest
import ray
from ray.util import placement_group, placement_group_table
from ray.util.placement_group import PlacementGroup

from pipelines.run.runtime.engine_actors import pool

pytestmark = pytest.mark.usefixtures("local_ray")


class Spanning:
    """Has a placement group, as an engine of several stages."""

    def __init__(self) -> None:
        owner = ray.get_runtime_context().get_actor_id()
        self._group = placement_group([{"CPU": 0.01}], name=f"assay-engine:{owner}:0", lifetime="detached")

    def group(self) -> str:
        assert self._group.wait(60)
        return str(self._group.id.hex())


def test_what_engines_on_several_nodes_held_is_given_back_when_their_pool_ends() -> None:
    with pool(Spanning, size=2, options={}) as engines:
        groups = ray.get([actor.group.remote() for actor in engines.actors])
        other = placement_group([{"CPU": 0.01}], name="somebody's")
        assert {placement_group_table()[group]["state"] for group in groups} == {"CREATED"}
    assert {placement_group_table()[group]["state"] for group in groups} == {"REMOVED"}
    assert isinstance(other, PlacementGroup)
    assert placement_group_table(other)["state"] != "REMOVED"
