"""Layouts: the arithmetic by hand, known answers for the large models, and what can't be."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from actors.capacity.cards import CARDS
from actors.capacity.layout import BYTES, GIB, Layout, Size, check_layout, need, smallest_layout
from actors.capacity.sizes import SIZES, size_of
from actors.checkpoint.checkpoint_files import BUILT_IN, Checkpoint
from actors.errors import ModelError, SettingsError
from actors.reward_model import families

LARGE = SIZES["nvidia/Nemotron-4-340B-Reward"]
SMALL, BIG = CARDS["H100"].memory, CARDS["H200"].memory
ULTRA = SIZES["nvidia/Nemotron-3-Ultra-550B-A55B-GenRM"]
SIMPLE = Size(10e9, 10, 1000, 4000, 16, 4, 64, "made up")


def test_the_arithmetic_by_hand() -> None:
    actual_need = need(SIMPLE, Layout(2, 5), 1000, parameter_bytes=2.0, gpu_bytes=100e9)
    assert actual_need.weights == 10e9 * 2 / 10  # ten GPUs, ten layers: each has a tenth
    assert actual_need.cached_tokens == 65_536
    assert actual_need.cache == 65_536 * 2 * 2 * 2 * 2 * 64  # tokens, keys and values, bytes, two layers, two heads of 64
    assert actual_need.activations == 16_384 * 2 * (4 * 1000 + 2 * 4000 / 2)
    assert actual_need.room == pytest.approx(90e9)
    assert actual_need.total == actual_need.weights + actual_need.cache + actual_need.activations + 3 * GIB
    assert str(actual_need).startswith("TP 2 x PP 5: 1.9 weights + 0.1 cache of 65,536 tokens + ")
    assert str(actual_need).endswith(f" of {90e9 / GIB:.1f} GiB a GPU")


def test_values_have_the_precision_of_the_weights_and_16_bits_at_least() -> None:
    for precision, value_bytes in (("float32", 4), ("bfloat16", 2), ("fp8", 2)):
        computed = need(SIMPLE, Layout(1), 1000, parameter_bytes=BYTES[precision], gpu_bytes=100e9)
        assert computed.cache == 65_536 * 2 * value_bytes * 10 * 4 * 64
        assert computed.activations == 16_384 * value_bytes * (4 * 1000 + 2 * 4000)


def test_the_fullest_stage_and_the_longest_contexts_count() -> None:
    uneven = need(SIMPLE, Layout(1, 4), 50_000, parameter_bytes=2.0, gpu_bytes=100e9)
    assert uneven.weights == 10e9 * 2 * 3 / 10  # ten layers in four stages: three, three, two, two
    assert uneven.cached_tokens == 200_000
    assert need(SIMPLE, Layout(8), 1000, parameter_bytes=2.0, gpu_bytes=1e9).cache == 65_536 * 2 * 2 * 10 * 1 * 64


@pytest.mark.parametrize(
    ("model", "context", "precision", "gpu", "expected"),
    [
        ("nvidia/Nemotron-4-340B-Reward", 4096, "bfloat16", SMALL, Layout(8, 2)),  # what its card says: 16 GPUs of 80 GB
        ("nvidia/Nemotron-4-340B-Reward", 4096, "fp8", SMALL, Layout(8)),
        ("nvidia/Nemotron-4-340B-Reward", 4096, "bfloat16", BIG, Layout(8)),
        ("nvidia/Nemotron-4-340B-Reward", 4096, "fp8", BIG, Layout(4)),
        ("nvidia/Llama-3.3-Nemotron-70B-Reward", 4096, "bfloat16", SMALL, Layout(4)),
        ("nvidia/Llama-3.3-Nemotron-70B-Reward", 4096, "bfloat16", BIG, Layout(2)),
        ("Skywork/Skywork-Reward-V2-Qwen3-8B", 16384, "bfloat16", SMALL, Layout(1)),
    ],
)
def test_the_layouts_of_published_models(model: str, context: int, precision: str, gpu: float, expected: Layout) -> None:
    smallest = smallest_layout(SIZES[model], context, parameter_bytes=BYTES[precision], gpu_bytes=gpu)
    assert smallest.layout == expected


def test_heads_that_eight_cant_share() -> None:
    """Qwen2.5-7B has 28."""
    size = SIZES["Qwen/Qwen2.5-Math-PRM-7B"]
    for tensor in (1, 2, 4):
        assert check_layout(size, Layout(tensor), 4096, parameter_bytes=2.0, gpu_bytes=SMALL).fits
    with pytest.raises(SettingsError, match="28 attention heads, of 4 keys and values, can't be shared by 8 GPUs"):
        check_layout(size, Layout(8), 4096, parameter_bytes=2.0, gpu_bytes=SMALL)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(8), r"it doesn't fit\. TP 8: 79\.\d weights .* of 71\.7 GiB a GPU\. This does: TP 8 x PP 2: 39\.\d weights"),
        (Layout(16), "a node has 8 GPUs"),
        (Layout(8, 97), "there are 96 layers to share out"),
        (Layout(5), "96 attention heads, of 8 keys and values, can't be shared by 5 GPUs"),
    ],
)
def test_a_layout_that_cant_be_is_told_with_the_arithmetic(layout: Layout, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_layout(LARGE, layout, 4096, parameter_bytes=2.0, gpu_bytes=SMALL)


def test_what_no_layout_holds() -> None:
    with pytest.raises(SettingsError, match="no layout holds it; the largest looked at is TP 8 x PP 96"):
        smallest_layout(LARGE, 4096, parameter_bytes=2.0, gpu_bytes=4 * GIB)


@given(
    parameters=st.floats(1e8, 1e12),
    layers=st.integers(1, 128),
    heads=st.sampled_from([8, 12, 28, 32, 40, 64, 96]),
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    context=st.integers(512, 131_072),
    per_node=st.sampled_from([1, 2, 4, 8]),
    gpu=st.sampled_from([SMALL, BIG]),
)
def test_the_smallest_fits_and_nothing_smaller_that_was_looked_at_does(
    parameters: float, layers: int, heads: int, kv_heads: int, context: int, per_node: int, gpu: int
) -> None:
    size = Size(parameters, layers, 4096, 16384, heads, kv_heads, 128, "drawn")
    limits = {"parameter_bytes": 2.0, "gpu_bytes": float(gpu)}
    try:
        actual_need = smallest_layout(size, context, **limits, per_node=per_node)
    except SettingsError:
        widest = max(count for count in (1, 2, 4, 8) if count <= per_node and heads % count == 0)
        assert not need(size, Layout(widest, layers), context, **limits).fits, "the most that there could be"
        return
    tensor, pipeline = actual_need.layout
    assert actual_need.fits
    assert tensor <= per_node
    assert heads % tensor == 0
    assert check_layout(size, actual_need.layout, context, **limits, per_node=per_node) == actual_need
    if pipeline > 1:
        assert not need(size, Layout(tensor, pipeline - 1), context, **limits).fits
    elif tensor > 1 and kv_heads % (tensor // 2) == 0:
        assert not need(size, Layout(tensor // 2), context, **limits).fits


def test_every_published_model_of_the_registry_has_a_size() -> None:
    missing = [
        model.id
        for family in families().values()
        for model in family.models
        if "/" in model.id and not any(model.matches(name) for name in SIZES)
    ]
    assert missing == []


def test_the_size_of_a_checkpoint_is_that_of_its_weights() -> None:
    for name in sorted(path.parent.name for path in BUILT_IN.glob("*/config.json")):
        checkpoint = Checkpoint.find(f"tiny-{name.replace('_', '-')}", None)
        size = size_of(checkpoint)
        assert size.parameters == sum(math.prod(shape) for shape in checkpoint.tensors.values() if shape is not None)
        assert size.layers == checkpoint.config["num_hidden_layers"]
        assert smallest_layout(size, 1024, parameter_bytes=4.0, gpu_bytes=SMALL).layout == Layout(1)


@pytest.mark.parametrize(
    ("card", "precision", "used", "expected"),
    [
        # docs.nvidia.com/nim/large-language-models/2.0.6/day-0/support-matrix-day-0.html
        ("H100", "bfloat16", 0.9, Layout(8, 2)),
        ("H200", "bfloat16", 0.96, Layout(8)),
        ("H200", "bfloat16", 0.9, Layout(8, 2)),  # 127.9 GiB of weights on a GPU that gives vLLM 126.4
        ("B200", "bfloat16", 0.9, Layout(8)),
        ("GB200", "bfloat16", 0.9, Layout(4, 2)),
        ("H100", "nvfp4", 0.9, Layout(8)),
        ("H200", "nvfp4", 0.9, Layout(4)),
        ("B200", "nvfp4", 0.9, Layout(4)),
        ("GB300", "nvfp4", 0.9, Layout(2)),
    ],
)
def test_the_550b_judge_is_laid_out_as_nvidia_does(card: str, precision: str, used: float, expected: Layout) -> None:
    gpu = CARDS[card]
    limits = {"parameter_bytes": BYTES[precision], "gpu_bytes": gpu.memory * used / 0.9}
    assert smallest_layout(ULTRA, 32_768, **limits, per_node=gpu.per_node).layout == expected


HYBRID = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "dtype": "bfloat16", "hidden_size": 64,
    "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    "layers_block_type": ["mamba", "moe", "mamba", "attention", "moe", "mamba"], "mamba_num_heads": 8,
    "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 48, "moe_latent_size": 16, "tie_word_embeddings": False,
}  # fmt: skip


def size_in(folder: Path, config: dict[str, object]) -> Size:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return size_of(Checkpoint(folder, None))


def test_a_hybrid_has_keys_and_values_in_its_attention_layers_alone(tmp_path: Path) -> None:
    size = size_in(tmp_path / "hybrid", HYBRID)
    assert (size.layers, size.cached_layers, size.state) == (6, 1, 3 * 8 * 16 * 16 * 4.0)
    assert size.intermediate == 2 * 32 + 48
    assert size.embeddings == 2 * 100 * 64
    experts = 2 * 8 * 2 * 16 * 32  # two layers of eight experts, each with two matrices from the latent size and back
    assert size.active == size.parameters - experts * (1 - 2 / 8)
    cached = need(size, Layout(1), 1000, parameter_bytes=2.0, gpu_bytes=1e9).cache
    assert cached == pytest.approx(65_536 * 2 * 2 * 1 * 2 * 16 + size.state * 65.536)


@pytest.mark.parametrize(
    ("quantisation", "precision"),
    [
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}}},
            "int4",
        ),
        ({"quant_method": "mxfp4"}, "int4"),
    ],
)
def test_a_quantised_checkpoint_is_counted_unpacked_and_weighed_by_its_files(
    tmp_path: Path, quantisation: dict[str, object], precision: str
) -> None:
    plain = size_in(tmp_path / "plain", HYBRID)
    quantised = size_in(tmp_path / "quantised", {**HYBRID, "quantization_config": quantisation})
    assert (quantised.quantised, quantised.parameters, quantised.stored) == (precision, plain.parameters, None)
    assert quantised.bytes_in(precision) == BYTES[precision]
    whole = Checkpoint.find("tiny-attributes", None)
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "model.safetensors").symlink_to(whole.folder / "model.safetensors")
    (packed / "config.json").write_text(json.dumps({**whole.config, "quantization_config": quantisation}))
    stored = size_of(Checkpoint(packed, None))
    assert stored.bytes_in(precision) == (packed / "model.safetensors").stat().st_size / stored.parameters
    assert stored.bytes_in("bfloat16") == 2.0


@pytest.mark.parametrize("quantisation", [{}, {"quantization_config": {"quant_method": "fp8"}}], ids=["plain", "quantised"])
def test_weights_that_lie_there_in_another_form_are_counted_once(tmp_path: Path, quantisation: dict[str, object]) -> None:
    """As Mistral's consolidated.safetensors lies beside the files of the index, which vLLM loads."""
    whole = Checkpoint.find("tiny-attributes", None)
    weights = load_file(whole.folder / "model.safetensors")
    save_file(weights, tmp_path / "model.safetensors")
    save_file({f"other.{name}": weights[name] for name in weights}, tmp_path / "consolidated.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(whole.tensors, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps({**whole.config, **quantisation}))
    size = size_of(Checkpoint(tmp_path, None))
    if quantisation:
        assert size.stored == (tmp_path / "model.safetensors").stat().st_size
    else:
        assert size.parameters == size_of(whole).parameters


def test_a_quantisation_of_no_known_kind_is_no_size(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a quantization_config that can't be planned"):
        size_in(tmp_path / "odd", {**HYBRID, "quantization_config": {"quant_method": "aqlm"}})
