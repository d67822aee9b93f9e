"""How fast an engine is expected to be: what was measured, and estimates from a card's data sheet, with their range.

Reading prompts, which is all that a reward head does, is bound by what a card multiplies. The share of its peak that an
engine reaches was measured with an 8B in bfloat16 on an H200; for other models, cards and precisions it is an estimate.
Generating is bound by the memory: its figures are TensorRT-LLM's. A measured run of the user's is better (`--like`).
"""

from typing import NamedTuple

from actors.capacity.cards import CARDS, Card
from actors.capacity.layout import Size

_TENSORRT_LLM = (
    "TensorRT-LLM 1.0 performance overview, https://github.com/NVIDIA/TensorRT-LLM/blob/"
    "00f37686aa854010d68bcbd0f4ab000221541ca6/docs/source/performance/perf-overview.md"
)
# Computed parameters below which no speed is expected: the host bounds it, as of the 0.6B in bench/README.md.
_SMALLEST = 2e9
# Shares of a card's peak that an engine reaches while it reads: the least to expect, the usual one, and the most.
# 605 of 989 TFLOP/s in the layers' matrices, and 43,906 tokens/s for a whole job, which is 0.62 (bench/README.md).
_MEASURED = (0.58, 0.61, 0.64)
# In FP8 the figures that TensorRT-LLM published of prompts of 2,048 tokens with answers of 128, which spend some time on
# writing, come to 0.42 of the peak for an 8B on an H200, 0.45 for a 70B on two H100; none is published in NVFP4.
_DENSE = {"bfloat16": (0.3, 0.5, 0.65), "fp8": (0.3, 0.43, 0.6), "nvfp4": (0.15, 0.3, 0.5)}
# Of mixtures of experts, whose matrices are small: those figures of Qwen3 235B-A22B come to 0.09 (H100) and 0.14 (H200).
_EXPERTS = (0.06, 0.13, 0.35)


class Speed(NamedTuple):
    """Prompt tokens that one GPU reads in a second, tokens that it generates in a second, and the source.

    The truth is expected between `low` and `high` times these.
    """

    read: float
    written: float
    writing_source: str
    low: float
    high: float
    source: str


class Published(NamedTuple):
    """Tokens that `gpus` cards generate per second in FP8, in answers of 2,048 tokens after prompts of 128."""

    model: str
    parameters: float
    active: float
    gpu: str
    gpus: int
    writing: float


PUBLISHED = (
    Published("Llama 3.1 8B", 8.03e9, 8.03e9, "H100", 1, 22714),
    Published("Llama 3.1 8B", 8.03e9, 8.03e9, "H200", 1, 26221),
    Published("Llama 3.3 70B", 70.6e9, 70.6e9, "H100", 2, 6651),
    Published("Llama 3.3 70B", 70.6e9, 70.6e9, "H200", 1, 4336),
    Published("Qwen3 235B-A22B", 235e9, 22e9, "H100", 8, 19658),
    Published("Qwen3 235B-A22B", 235e9, 22e9, "H200", 8, 42821),
    Published("Llama 3.1 405B", 405e9, 405e9, "H100", 8, 4340),
    Published("Llama 3.1 405B", 405e9, 405e9, "H200", 8, 5348),
)


def expected_speed(size: Size, card: Card, precision: str) -> Speed | None:
    """The speed of a GPU with weights in this precision; None in float32, of small models, and of cards without a peak."""
    computed_in = card.computes_in(precision)
    peak = card.peak.get(computed_in)
    if computed_in == "float32" or peak is None or size.computed < _SMALLEST:
        return None
    measured = (card.name, precision) == ("H200", "bfloat16") and size.active is None and 4e9 <= size.parameters <= 16e9
    share = _MEASURED if measured else _EXPERTS if size.active is not None else _DENSE[computed_in]
    low, usual, high = (part * card.share for part in share)
    source = (
        f"measured with an 8B on an H200: {usual:.2f} of the peak in bfloat16 (bench/README.md)"
        if measured
        else f"estimated from the data sheet: {usual:.2f} of the peak in {computed_in} of a {card.name}, {low:.2f} to "
        f"{high:.2f}; {card.source}"
    )
    return Speed(usual * peak / (2 * size.computed), *_writing(size, card, precision), low / usual, high / usual, source)


def _writing(size: Size, card: Card, precision: str) -> tuple[float, str]:
    """Tokens that a GPU generates in a second: the figure of the model nearest in size, scaled; and where it is from."""
    named = card.name if any(figure.gpu == card.name for figure in PUBLISHED) else "H200"
    dense = size.active is None
    figures = [figure for figure in PUBLISHED if figure.gpu == named and (figure.active == figure.parameters) is dense]
    active = size.active or size.parameters
    figure = min(figures, key=lambda figure: max(figure.active / active, active / figure.active))
    # Each step reads the weights: half as many fit through in 16 bits, and no gain is assumed below 8.
    scale = figure.active / active * card.bandwidth / CARDS[named].bandwidth / (2 if precision == "bfloat16" else 1)
    source = (
        f"writing: {figure.writing:,} tokens/s of {figure.model} in FP8 on {figure.gpus} {named}, scaled by parameters, "
        f"memory bandwidth and precision, {_TENSORRT_LLM}"
    )
    return figure.writing / figure.gpus * scale, source


def least_seconds(size: Size, card: Card, precision: str, tokens: float, gpus: int) -> float | None:
    """A lower bound in seconds for passing so many tokens through the model once: the cards' peak; None if unknown."""
    peak = card.peak.get(card.computes_in(precision))
    # A multiplication and an addition for each parameter that a token uses.
    return None if peak is None else 2 * size.computed * tokens / (peak * gpus)
