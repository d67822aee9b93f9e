"""What speed is expected: as measured, or an estimate within what a card can do at all, and said to be which."""

import itertools

import pytest

from actors.capacity.cards import CARDS
from actors.capacity.layout import Size
from actors.capacity.sizes import SIZES
from actors.capacity.throughputs import PUBLISHED, expected_speed, least_seconds

LLAMA_8B = SIZES["Skywork/Skywork-Reward-V2-Llama-3.1-8B"]
ULTRA = SIZES["nvidia/Nemotron-3-Ultra-550B-A55B-GenRM"]


def test_an_8b_on_an_h200_reads_what_was_measured() -> None:
    """bench/README.md: 43,906 tokens/s for a whole job, 43,339 in rounds."""
    speed = expected_speed(LLAMA_8B, CARDS["H200"], "bfloat16")
    assert speed is not None
    assert speed.read == pytest.approx(43_906, rel=0.05)
    assert speed.source.startswith("measured")
    assert speed.low * speed.read < 43_339
    assert speed.high * speed.read > 43_906


def test_nothing_else_is_said_to_be_measured() -> None:
    for (name, card), precision, size in itertools.product(
        CARDS.items(), ("bfloat16", "fp8", "nvfp4", "int4"), (LLAMA_8B, SIZES["Qwen/Qwen2.5-Math-RM-72B"], ULTRA)
    ):
        speed = expected_speed(size, card, precision)
        if (name, precision, size) == ("H200", "bfloat16", LLAMA_8B) or speed is None:
            continue
        assert speed.source.startswith("estimated from the data sheet: "), (name, precision)
        assert speed.low < 1 < speed.high


def test_experts_take_memory_by_all_parameters_and_time_by_those_that_a_token_passes() -> None:
    dense = Size(10e9, 4, 64, 256, 4, 4, 16, "drawn")
    experts = Size(10e9, 4, 64, 256, 4, 4, 16, "drawn", active=1e9, embeddings=0.1e9)
    card = CARDS["H100"]
    whole, part = (least_seconds(size, card, "fp8", 1e6, 1) for size in (dense, experts))
    assert whole == pytest.approx(2 * 10e9 * 1e6 / 1978.9e12)
    assert part == pytest.approx(2 * 0.9e9 * 1e6 / 1978.9e12)
    assert ULTRA.active == pytest.approx(55e9, rel=0.03)


def test_a_card_computes_in_no_fewer_bits_than_it_can_multiply() -> None:
    assert [CARDS[name].computes_in("nvfp4") for name in ("B200", "H200", "A10")] == ["nvfp4", "bfloat16", "bfloat16"]
    assert [CARDS[name].computes_in("fp8") for name in ("H200", "A100")] == ["fp8", "bfloat16"]
    assert CARDS["B200"].computes_in("int4") == "bfloat16"
    assert expected_speed(LLAMA_8B, CARDS["H200"], "float32") is None, "tensor cores don't compute in it"
    for unknown in ("H100-NVL", "RTX-6000-Ada"):
        assert expected_speed(LLAMA_8B, CARDS[unknown], "bfloat16") is None
        assert least_seconds(LLAMA_8B, CARDS[unknown], "bfloat16", 1, 1) is None


def test_nothing_is_expected_of_models_that_the_host_bounds() -> None:
    """By its peak an H200 would read 560,000 tokens/s with a 0.6B; 283,000 were seen (bench/README.md, `short`)."""
    small = Size(0.6e9, 28, 1024, 3072, 16, 8, 128, "drawn", embeddings=0.16e9)
    assert expected_speed(small, CARDS["H200"], "bfloat16") is None


def test_peaks_are_those_without_sparsity() -> None:
    """A data sheet's first figure is twice what dense matrices come to. Dense FP4 is 2 to 3.2 times FP8, FP8 twice BF16."""
    dense = {
        "A100": 312,
        "H100": 989.4,
        "H200": 989.4,
        "B200": 2250,
        "GB200": 2500,
        "L40S": 362.05,
        "A10": 125,
        "MI300X": 1307.4,
    }
    for name, tera in dense.items():
        assert CARDS[name].peak["bfloat16"] == tera * 1e12
    for card in CARDS.values():
        if "fp8" in card.peak:
            assert card.peak["fp8"] / card.peak["bfloat16"] == pytest.approx(2, rel=0.02)
        if "nvfp4" in card.peak:
            assert 1.9 < card.peak["nvfp4"] / card.peak["fp8"] < 3.2


def test_every_expected_speed_is_below_the_bound() -> None:
    for card, precision, (name, size) in itertools.product(CARDS.values(), ("bfloat16", "fp8", "nvfp4"), SIZES.items()):
        speed, least = expected_speed(size, card, precision), least_seconds(size, card, precision, 1, 1)
        assert (speed is None) == (least is None or size.computed < 2e9)
        if speed is not None and least is not None:
            assert 1 / (speed.read * speed.high) > least, (card.name, precision, name)


def test_a_figure_of_writing_is_of_its_own_model_and_card_where_there_is_one() -> None:
    size = SIZES["nvidia/Llama-3.3-Nemotron-70B-Reward"]
    listed = expected_speed(size, CARDS["H100"], "fp8")
    assert listed is not None
    assert listed.written == pytest.approx(6651 / 2)
    other = expected_speed(size, CARDS["B200"], "bfloat16")
    assert other is not None
    assert other.written == pytest.approx(4336 * 7.7 / 4.8 / 2)
    experts = expected_speed(ULTRA, CARDS["H200"], "fp8")
    assert experts is not None
    assert experts.written == pytest.approx(42821 / 8 * 22e9 / 56.1e9)
    assert "Qwen3 235B-A22B" in experts.writing_source
    assert {figure.gpu for figure in PUBLISHED} <= CARDS.keys()
