"""Which nodes an engine of several stages is put on, and which models are refused before anything starts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.capacity.layout import Layout
from actors.capacity.sizes import SIZES
from actors.checkpoint.checkpoint_files import locate
from actors.errors import EngineError, SettingsError
from actors.launch import placement
from actors.launch.placement import check_memory, nodes_for, with_node
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings


def test_a_tensor_parallel_group_is_on_one_node() -> None:
    cases: list[tuple[Layout, dict[str, float], list[str] | None]] = [
        (Layout(8, 2), {"a": 8, "b": 8}, ["b", "a"]),
        (Layout(8, 2), {"a": 10, "b": 6}, None),  # sixteen, and no two groups of eight
        (Layout(8, 2), {"a": 8, "b": 7, "c": 8}, ["c", "a"]),
        (Layout(4, 2), {"a": 4, "b": 8, "c": 4}, ["b", "b"]),  # as few nodes as there can be
        (Layout(2, 3), {"a": 3, "b": 5}, ["b", "b", "a"]),
        (Layout(1), {"a": 0.5}, None),
        (Layout(1), {}, None),
    ]
    for layout, gpus, expected in cases:
        assert nodes_for(layout, gpus) == expected


def test_an_engine_is_beside_its_first_stage_where_there_is_room() -> None:
    cases: list[tuple[list[str], float, list[str]]] = [
        (["a", "b"], 0, ["a", "b"]),
        (["a", "here"], 8, ["a", "here"]),
        (["a", "b"], 4, ["here", "a"]),
        (["a", "a"], 8, ["here", "here"]),
        ([], 8, []),
    ]
    for nodes, free, expected in cases:
        assert with_node("here", nodes, Layout(4, 2), {"here": free, "a": 8.0, "b": 8.0}) == expected


LARGE = SIZES["nvidia/Llama-3.3-Nemotron-70B-Reward"]
H100S = {"CPU": 64.0, "GPU": 8.0, "accelerator_type:H100": 1.0}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> RewardModel:
    """A small checkpoint that passes for one of 70 billion parameters in 16 bits: too large for a card."""
    monkeypatch.setattr(placement, "engine_gpus", lambda settings: settings.tensor_parallel)
    monkeypatch.setattr(placement, "size_of_model", lambda name: LARGE)
    reward_model = resolve_model(ModelSettings(model="tiny-attributes"), RenderSettings())
    return replace(reward_model, dtype="bfloat16")


def on(monkeypatch: pytest.MonkeyPatch, *nodes: dict[str, float]) -> None:
    monkeypatch.setattr(placement, "_node_resources", lambda: {str(index): node for index, node in enumerate(nodes)})


def test_weights_that_cant_fit_are_refused_with_the_arithmetic(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, {"CPU": 8.0}, H100S)
    with pytest.raises(SettingsError, match=r"can't fit. TP 1: 131.5 weights .* This does: TP 4: 32.9 weights"):
        check_memory(EngineSettings(), model)
    check_memory(EngineSettings(tensor_parallel=2), model)  # whose cache may be short, but vLLM decides that


@pytest.mark.parametrize(
    ("nodes", "engine"),
    [
        ([H100S, {"GPU": 8.0, "accelerator_type:B200": 1.0}], {}),
        ([H100S, {"GPU": 8.0}], {}),
        ([H100S], {"autoscaled": True}),
        ([H100S], {"engine_args": {"quantization": "fp8"}}),
        ([H100S], {"engine_args": {"cpu_offload_gb": 80}}),
    ],
    ids=["a larger card", "a card of no name", "nodes to come", "quantised while it loads", "weights in the host's memory"],
)
def test_what_may_fit_is_left_to_the_engine(
    nodes: list[dict[str, float]], engine: dict[str, Any], model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, *nodes)
    check_memory(EngineSettings(**engine), model)


@pytest.mark.parametrize(
    ("file", "added"),
    [
        ("config.json", {"quantization_config": {"quant_method": "fp8"}}),
        ("config.json", {"compression_config": {"config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}}}),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}),
    ],
    ids=["config.json", "of compressed-tensors", "of Model Optimizer, in a file of its own"],
)
def test_a_quantised_checkpoint_is_left_to_the_engine(
    file: str, added: dict[str, Any], model: RewardModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, H100S)
    folder = tmp_path / "fp8"
    shutil.copytree(locate(model.model), folder)
    with pytest.raises(SettingsError, match="can't fit"):
        check_memory(EngineSettings(), replace(model, model=str(folder)))
    place = folder / file
    place.write_text(json.dumps((json.loads(place.read_text()) if place.is_file() else {}) | added))
    check_memory(EngineSettings(), replace(model, model=str(folder)))


def test_what_fits_the_largest_card_of_a_name_is_left_to_the_engine(
    model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, H100S)
    monkeypatch.setattr(placement, "size_of_model", lambda name: replace(LARGE, parameters=45e9))  # 84 GiB; an NVL has 94
    check_memory(EngineSettings(), model)


def busy(monkeypatch: pytest.MonkeyPatch, *rooms: list[str]) -> list[float]:
    """A node whose GPUs are in use; requests for room are answered with `rooms`. Returns the seconds that each may wait."""
    waits, answers = list[float](), iter(rooms)

    def find_room(layout: Layout, wait_s: float) -> list[str]:
        waits.append(wait_s)
        return next(answers, [])

    on(monkeypatch, H100S)
    monkeypatch.setattr(placement, "engine_gpus", lambda settings: settings.tensor_parallel)
    monkeypatch.setattr(placement, "check_memory", lambda settings, model: None)
    monkeypatch.setattr(placement, "_free_gpus", lambda: {"0": 1.0})
    monkeypatch.setattr(placement, "_find_room", find_room)
    monkeypatch.setattr(placement, "sweep", lambda: None)
    return waits


def test_gpus_that_others_hold_are_waited_for_and_the_wait_is_said_once(
    model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, messages = busy(monkeypatch, [], [], ["0"]), list[str]()
    placement.wait_for_room(EngineSettings(tensor_parallel=2, placement_timeout_s=60.0), model, messages.append)
    assert messages == ["waiting up to 60 s for 2 GPUs of one node; free are 1 node with 1"]
    assert len(waits) == 3
    assert max(waits) < 60.0, "a lost node must be noticed while others are waited for"


def test_free_gpus_are_taken_without_a_word(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, messages = busy(monkeypatch, ["0"]), list[str]()
    placement.wait_for_room(EngineSettings(tensor_parallel=2), model, messages.append)
    assert (len(waits), messages) == (1, [])


def test_gpus_that_never_come_free_end_the_wait_with_what_there_was(
    model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(monkeypatch)
    settings = EngineSettings(tensor_parallel=2, placement_timeout_s=0.01)
    with pytest.raises(EngineError, match=r"TP 2 waited 0 s for 2 GPUs of one node; free are 1 node with 1"):
        placement.wait_for_room(settings, model, lambda message: None)
