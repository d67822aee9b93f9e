"""Which nodes an engine of several stages is put on."""

import pytest

from actors.layout import Layout
from actors.placement import nodes_for


@pytest.mark.parametrize(
    ("layout", "gpus", "expected"),
    [
        (Layout(8, 2), {"a": 8, "b": 8}, ["b", "a"]),
        (Layout(8, 2), {"a": 10, "b": 6}, None),  # sixteen, and no two groups of eight
        (Layout(8, 2), {"a": 8, "b": 7, "c": 8}, ["c", "a"]),
        (Layout(4, 2), {"a": 4, "b": 8, "c": 4}, ["b", "b"]),  # as few nodes as there can be
        (Layout(2, 3), {"a": 3, "b": 5}, ["b", "b", "a"]),
        (Layout(1), {"a": 0.5}, None),
        (Layout(1), {}, None),
    ],
)
def test_a_tensor_parallel_group_is_on_one_node(layout: Layout, gpus: dict[str, float], expected: list[str] | None) -> None:
    assert nodes_for(layout, gpus) == expected
