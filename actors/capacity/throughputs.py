"""Published throughputs of engines, reading prompts and generating, with their sources; and the peak that no card exceeds.

There are few published figures of reading alone (prefill), which is all that a reward head does. So they are computed from
runs with long prompts and short answers, which spent some time on generating, too: an engine that only reads is a little
faster. The figures are TensorRT-LLM's and not vLLM's. A measured run of the user's is better (`--like`, `--tokens-per-s`).
"""

from typing import NamedTuple

from actors.capacity.layout import Size

# float32 is computed without tensor cores: NVIDIA's data sheets give it 67 TFLOPS on H100 SXM and H200 SXM, 19.5 on A100.
PEAK = {"float32": 66.9e12, "bfloat16": 989.4e12, "fp8": 1978.9e12}
"""Operations of a card per second, without sparsity: an H100 and an H200 alike; an A100 does fewer."""
PEAK_SOURCE = "the card's peak without sparsity, https://glennklockwood.com/garden/processors/h100"
_MOST_SCALED = 3.0
"""The largest ratio of model sizes over which a figure is scaled."""
_CARDS = {"80GB": "H100", "141GB": "H200"}
_TENSORRT_LLM = (
    "TensorRT-LLM 1.0 performance overview, https://github.com/NVIDIA/TensorRT-LLM/blob/"
    "00f37686aa854010d68bcbd0f4ab000221541ca6/docs/source/performance/perf-overview.md"
)


class Speed(NamedTuple):
    """Prompt tokens that one GPU reads in a second, tokens that it generates in a second, and the source."""

    read: float
    written: float
    source: str


class Published(NamedTuple):
    """A figure in FP8 on `gpus` cards: `output` tokens generated per second, `answer` after each prompt of `prompt`."""

    model: str
    parameters: float
    active: float
    gpu: str
    gpus: int
    prompt: int
    answer: int
    output: float
    writing: float
    """The same with prompts of 128 tokens and answers of 2,048: nearly all of the time is generating."""


PUBLISHED = (
    Published("Llama 3.1 8B", 8.03e9, 8.03e9, "80GB", 1, 2048, 128, 3450, 22714),
    Published("Llama 3.1 8B", 8.03e9, 8.03e9, "141GB", 1, 2048, 128, 3538, 26221),
    Published("Llama 3.3 70B", 70.6e9, 70.6e9, "80GB", 2, 2048, 128, 762, 6651),
    Published("Llama 3.3 70B", 70.6e9, 70.6e9, "141GB", 1, 2048, 128, 442, 4336),
    Published("Qwen3 235B-A22B", 235e9, 22e9, "80GB", 8, 5000, 500, 3225, 19658),
    Published("Qwen3 235B-A22B", 235e9, 22e9, "141GB", 8, 2048, 128, 3331, 42821),
    Published("Llama 3.1 405B", 405e9, 405e9, "80GB", 8, 2048, 128, 453, 4340),
    Published("Llama 3.1 405B", 405e9, 405e9, "141GB", 8, 2048, 128, 456, 5348),
)


def published_throughput(size: Size, gpu: str, precision: str) -> Speed | None:
    """The figure of the model nearest in size, scaled to this one's size and precision; None if none is near.

    None in float32: tensor cores don't compute in it, and all figures are theirs. A mixture of experts is only
    compared with one of the same size (within 5 %): the cost of routing doesn't scale.
    """
    if precision == "float32":
        return None
    dense = size.active is None
    near = [
        figure
        for figure in PUBLISHED
        if figure.gpu == gpu
        and (figure.active == figure.parameters) is dense
        and max(figure.parameters / size.parameters, size.parameters / figure.parameters)
        <= (_MOST_SCALED if dense else 1.05)
    ]
    if not near:
        return None
    figure = min(near, key=lambda figure: max(figure.parameters / size.parameters, size.parameters / figure.parameters))
    sources = [
        f"{_TENSORRT_LLM}: {figure.model} in FP8 on {figure.gpus} {_CARDS[gpu]}, {figure.output:,} tokens/s written after "
        f"prompts of {figure.prompt:,} tokens with {figure.answer} each, {figure.writing:,} with 2,048 after 128"
    ]
    scale = figure.parameters / size.parameters
    if not 0.95 < scale < 1.05:
        sources.append(f"scaled by parameters, from {figure.parameters / 1e9:.0f} to {size.parameters / 1e9:.0f} billion")
    if precision != "fp8":
        scale *= PEAK[precision] / PEAK["fp8"]
        sources.append("halved for 16 bits, as the card's peak is")
    # All time counts as reading, so tokens read per second are those generated, times prompt over answer: a lower bound.
    read = figure.output * figure.prompt / figure.answer / figure.gpus
    return Speed(read * scale, figure.writing / figure.gpus * scale, "; ".join(sources))


def least_seconds(size: Size, precision: str, tokens: float, gpus: int) -> float:
    """A lower bound in seconds for passing so many tokens through the model once: the cards' peak, and nothing else."""
    # A multiplication and an addition for each parameter that a token uses.
    return 2 * (size.active or size.parameters) * tokens / (PEAK[precision] * gpus)
