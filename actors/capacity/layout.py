"""How many GPUs an engine of a model needs, and how they share it: tensor parallel within a node, pipeline over nodes.

A conservative estimate before anything is loaded, with its arithmetic; vLLM decides when it starts. Knows neither Ray nor
vLLM.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.errors import SettingsError

GIB = 2**30
# Bytes of a parameter. What checkpoints in 8 bits keep in 16 (norms, embeddings) fits into the spare room. In 4 bits it is
# included, as are the scales: NVIDIA's NVFP4 checkpoint of 549 billion parameters has 331 GB (docs/nemotron/ultra3 of
# https://github.com/NVIDIA-NeMo/Nemotron).
BYTES = {"float32": 4.0, "bfloat16": 2.0, "fp8": 1.0, "nvfp4": 0.6, "int4": 0.6}

# The share of a card's memory that is planned with; vLLM 0.32 takes 0.92 (`gpu_memory_utilization`) unless it is told.
USED = 0.9
# Bytes for CUDA, NCCL's buffers, and fragmentation.
_OVERHEAD = 3 * GIB
# Tokens that vLLM computes in a step (`max_num_batched_tokens` on these cards, in batch).
_STEP_TOKENS = 16_384
# The smallest cache, in longest prompts and in tokens: with less, too few prompts run at a time to keep a GPU busy.
_FEWEST_CONTEXTS, _FEWEST_CACHED = 4, 65_536


@dataclass(frozen=True)
class Size:
    """The sizes of a model that its memory follows from. `source` is where the numbers are from.

    Counts are of parameters, widths of values. `heads` times `head_dim` needn't be `hidden`, as in Qwen3.
    """

    parameters: float
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    source: str
    active: float | None = None
    """Parameters that one token uses, in a mixture of experts; None if it uses all."""
    dtype: str = "bfloat16"
    embeddings: float = 0.0
    """Parameters that reading a prompt multiplies nothing with: the embeddings and the output layer. 0 if not known."""
    cached_layers: int | None = None
    """Layers with keys and values; None if all have."""
    state: float = 0.0
    """Bytes that the recurrent layers (Mamba, linear attention) keep of each prompt that runs."""
    quantised: str | None = None
    """The precision, a key of `BYTES`, that the checkpoint was quantised to."""
    stored: float | None = None
    """Bytes of a quantised checkpoint's files, if they are here."""

    @property
    def computed(self) -> float:
        return (self.active or self.parameters) - self.embeddings

    def bytes_in(self, precision: str) -> float:
        """Bytes of a parameter on average, with the weights in this precision, a key of `BYTES`."""
        if self.stored is not None and precision == self.quantised:
            return self.stored / self.parameters
        return BYTES[precision]


class Layout(NamedTuple):
    """`tensor_parallel` GPUs of a node share each layer, and `pipeline_parallel` such groups share the layers out."""

    tensor_parallel: int
    pipeline_parallel: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel

    def __str__(self) -> str:
        return f"TP {self.tensor_parallel}" + (f" x PP {self.pipeline_parallel}" if self.pipeline_parallel > 1 else "")


@dataclass(frozen=True)
class Need:
    """What one GPU of a layout must hold, and the `room` that it has, both in bytes."""

    layout: Layout
    weights: float
    cache: float
    activations: float
    room: float
    cached_tokens: int

    @property
    def total(self) -> float:
        return self.weights + self.cache + self.activations + _OVERHEAD

    @property
    def fits(self) -> bool:
        return self.total <= self.room

    @property
    def can_fit(self) -> bool:
        # Whether the weights alone fit: the rest is a conservative estimate. Compared with all memory, not vLLM's share.
        return self.weights + _OVERHEAD <= self.room / USED

    def as_json(self) -> dict[str, Any]:
        return {**self.layout._asdict(), "gpus": self.layout.gpus, "arithmetic": str(self)}

    def __str__(self) -> str:
        parts = {"weights": self.weights, f"cache of {self.cached_tokens:,} tokens": self.cache}
        parts |= {"activations": self.activations, "CUDA and NCCL": float(_OVERHEAD)}
        terms = " + ".join(f"{size / GIB:.1f} {name}" for name, size in parts.items())
        return f"{self.layout}: {terms} = {self.total / GIB:.1f} of {self.room / GIB:.1f} GiB a GPU"


def precision_of(dtype: str) -> str:
    """The precision, a key of `BYTES`, of weights in a `dtype`: float16 takes the memory and the time of bfloat16."""
    return "float32" if dtype == "float32" else "bfloat16"


def need(size: Size, layout: Layout, context: int, *, parameter_bytes: float, gpu_bytes: float) -> Need:
    """What a GPU must hold in a layout, for prompts with their answers of up to `context` tokens.

    Experts take as much memory whether the GPUs share each of them or have some of them whole.
    """
    tensor, pipeline = layout
    layers = math.ceil(size.layers / pipeline)  # in the stage with the most
    cached = max(_FEWEST_CONTEXTS * context, _FEWEST_CACHED)
    cached_layers = layers if size.cached_layers is None else min(layers, size.cached_layers)
    kv_heads = max(1, size.kv_heads / tensor)  # with fewer heads than GPUs, every GPU has a copy of one
    value_bytes = max(2.0, parameter_bytes)  # keys, values and activations have 16 bits also where the weights have 8
    return Need(
        layout,
        weights=size.parameters * parameter_bytes * layers / size.layers / tensor,
        cache=2 * value_bytes * cached * cached_layers * kv_heads * size.head_dim
        + size.state * cached / context * layers / size.layers / tensor,
        activations=value_bytes * _STEP_TOKENS * (4 * size.hidden + 2 * size.intermediate / tensor),
        room=USED * gpu_bytes,
        cached_tokens=cached,
    )


def smallest_layout(size: Size, context: int, *, parameter_bytes: float, gpu_bytes: float, per_node: int = 8) -> Need:
    """The layout of the fewest GPUs that fits. Raises `SettingsError` with the arithmetic if none does.

    Tensor parallel within a node, whose GPUs are connected fast, and pipeline parallel over nodes.
    """
    needs = [
        need(size, layout, context, parameter_bytes=parameter_bytes, gpu_bytes=gpu_bytes)
        for layout in _list_layouts(size, per_node)
    ]
    fitting = next((option for option in needs if option.fits), None)
    if fitting is None:
        raise SettingsError(f"no layout holds it; the largest looked at is {needs[-1]}")
    return fitting


def check_layout(
    size: Size, layout: Layout, context: int, *, parameter_bytes: float, gpu_bytes: float, per_node: int = 8
) -> Need:
    """The need of a layout that the user chose. Raises `SettingsError`, with one that fits, if it doesn't fit."""
    limits = {"parameter_bytes": parameter_bytes, "gpu_bytes": gpu_bytes}
    if layout.tensor_parallel > per_node:
        raise SettingsError(f"{layout}: a node has {per_node} GPUs, and the layers are shared within one")
    if not _can_split(size, layout.tensor_parallel):
        raise SettingsError(
            f"{layout}: {size.heads} attention heads, of {size.kv_heads} keys and values, can't be shared by "
            f"{layout.tensor_parallel} GPUs"
        )
    if layout.pipeline_parallel > size.layers:
        raise SettingsError(f"{layout}: there are {size.layers} layers to share out")
    requested = need(size, layout, context, **limits)
    if not requested.fits:
        raise SettingsError(
            f"it doesn't fit. {requested}. This does: {smallest_layout(size, context, **limits, per_node=per_node)}"
        )
    return requested


def _list_layouts(size: Size, per_node: int) -> Iterator[Layout]:
    # Layouts from the fewest GPUs to the most: powers of 2 within one node, then several nodes.
    tensor = [tp for tp in (2**power for power in range(per_node.bit_length())) if tp <= per_node and _can_split(size, tp)]
    yield from (Layout(tp) for tp in tensor)
    yield from (Layout(tensor[-1], pp) for pp in range(2, size.layers + 1))


def _can_split(size: Size, tensor: int) -> bool:
    # Whole heads for each GPU, and key-value heads divided or copied evenly.
    return size.heads % tensor == 0 and (size.kv_heads % tensor == 0 or tensor % size.kv_heads == 0)
