"""What is published of speed: within what a card can do at all, and scaled no further than is said."""

import itertools

import pytest

from actors.capacity.layout import Size
from actors.capacity.sizes import SIZES
from actors.capacity.throughputs import PEAK, PUBLISHED, least_seconds, published_throughput

BIG, SMALL = "141GB", "80GB"


def test_what_is_published_of_the_model_itself() -> None:
    speed = published_throughput(SIZES["nvidia/Llama-3.3-Nemotron-70B-Reward"], SMALL, "fp8")
    assert speed is not None
    assert speed.read == pytest.approx(762 * 2048 / 128 / 2)
    assert speed.written == pytest.approx(6651 / 2)
    assert "2 H100, 762 tokens/s" in speed.source
    assert "https://github.com/NVIDIA/TensorRT-LLM/" in speed.source
    assert "scaled" not in speed.source
    halved = published_throughput(SIZES["nvidia/Llama-3.3-Nemotron-70B-Reward"], SMALL, "bfloat16")
    assert halved is not None
    assert halved.read == pytest.approx(speed.read / 2, rel=0.001)
    assert "halved for 16 bits" in halved.source


def test_nothing_is_published_of_float32_or_of_models_of_quite_another_size() -> None:
    size = SIZES["nvidia/Llama-3.3-Nemotron-70B-Reward"]
    assert published_throughput(size, SMALL, "float32") is None
    slower = least_seconds(size, "float32", 1, 1) / least_seconds(size, "bfloat16", 1, 1)
    assert slower == pytest.approx(989.4 / 66.9)
    for parameters in (1e6, 1e9, 1.5e12):
        assert published_throughput(Size(parameters, 4, 64, 256, 4, 4, 16, "drawn"), SMALL, "fp8") is None


def test_what_is_scaled_says_so() -> None:
    speed = published_throughput(SIZES["nvidia/Nemotron-4-340B-Reward"], BIG, "fp8")
    assert speed is not None
    assert speed.read == pytest.approx(456 * 16 / 8 * 405 / 341)
    assert "scaled by parameters, from 405 to 341 billion" in speed.source


def test_experts_are_compared_with_experts() -> None:
    speed = published_throughput(SIZES["nvidia/Qwen3-Nemotron-235B-A22B-GenRM"], BIG, "fp8")
    assert speed is not None
    assert "Qwen3 235B-A22B" in speed.source
    other = Size(150e9, 60, 4096, 12288, 64, 4, 128, "drawn", active=12e9)
    assert published_throughput(other, BIG, "fp8") is None
    dense = published_throughput(Size(200e9, 60, 4096, 12288, 64, 4, 128, "drawn"), BIG, "fp8")
    assert dense is not None
    assert "Qwen3 235B" not in dense.source


def test_no_figure_exceeds_the_cards() -> None:
    """Two operations for each parameter and token, read or written, are a part of the peak."""
    for figure in PUBLISHED:
        passed = figure.output * (figure.prompt + figure.answer) / figure.answer
        used = 2 * figure.active * passed / (figure.gpus * PEAK["fp8"])
        assert 0.05 < used < 0.8


def test_every_published_speed_is_below_the_bound() -> None:
    for precision, (name, size) in itertools.product(("bfloat16", "fp8"), SIZES.items()):
        speed = published_throughput(size, SMALL, precision)
        assert speed is not None, name
        assert 1 / speed.read > least_seconds(size, precision, 1, 1), name


def test_the_bound_is_of_the_parameters_that_a_token_passes() -> None:
    dense = Size(10e9, 4, 64, 256, 4, 4, 16, "drawn")
    experts = Size(10e9, 4, 64, 256, 4, 4, 16, "drawn", active=1e9)
    assert least_seconds(dense, "fp8", 1.9789e6, 1) == pytest.approx(20.0)
    assert least_seconds(experts, "fp8", 1e6, 1) == pytest.approx(least_seconds(dense, "fp8", 1e6, 1) / 10)
    assert least_seconds(dense, "bfloat16", 1e6, 2) == pytest.approx(least_seconds(dense, "fp8", 1e6, 1), rel=1e-3)
