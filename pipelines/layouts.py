"""Layouts for people: of one model with the arithmetic, and of every published model that we read, as a table."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from actors.checkpoint import Checkpoint
from actors.errors import ModelError, SettingsError
from actors.layout import BYTES, GPUS, Layout, Need, Size, checked, smallest
from actors.models import family_known
from actors.settings_base import Settings
from actors.sizes import SIZES, size_of

_HEAD_CONTEXT, _JUDGE_CONTEXT = 8192, 32_768
"""Where a card doesn't say what a model was trained on: prompts of heads, and of judges with what they write."""


class LayoutSettings(Settings):
    """What a layout is asked for."""

    model: str | None = Field(default=None, description="a folder, or the hub id of a model that `assay models` lists")
    gpu: Literal["80GB", "141GB"] = Field(default="80GB", description="the card: 80GB as A100 and H100, 141GB as H200")
    precision: Literal["bfloat16", "fp8"] = Field(default="bfloat16", description="how weights are held")
    gpus_per_node: int = Field(default=8, ge=1, description="GPUs that share a node")
    context: int | None = Field(
        default=None, ge=1, description="longest prompt with its answer, in tokens; what its card says if not given"
    )
    tensor_parallel: int | None = Field(default=None, ge=1, description="check this layout: GPUs that share a layer")
    pipeline_parallel: int = Field(default=1, ge=1, description="and groups of them that share the layers out")


def layout_of(settings: LayoutSettings) -> Need:
    """The layout that was asked for, or the smallest. Raises `SettingsError` with the arithmetic if it doesn't fit."""
    if settings.model is None:
        raise SettingsError("there is no --model; --table shows the layouts of all published ones")
    size = _size(settings.model)
    context = settings.context or _context(settings.model)
    limits = {"parameter_bytes": BYTES[settings.precision], "gpu_bytes": GPUS[settings.gpu]}
    if settings.tensor_parallel is None:
        if settings.pipeline_parallel > 1:
            raise SettingsError("--pipeline-parallel goes with --tensor-parallel")
        return smallest(size, context, **limits, per_node=settings.gpus_per_node)
    layout = Layout(settings.tensor_parallel, settings.pipeline_parallel)
    return checked(size, layout, context, **limits, per_node=settings.gpus_per_node)


def table() -> Iterator[str]:
    """The lines of a table in Markdown: the smallest layout of every model, on both cards, in both precisions."""
    columns = [(precision, gpu) for precision in BYTES for gpu in GPUS]
    names = {"bfloat16": "BF16", "fp8": "FP8"}
    yield f"| model | context | {' | '.join(f'{names[precision]}, {gpu}' for precision, gpu in columns)} |"
    yield f"|---|---|{'---|' * len(columns)}"
    for name, size in sorted(SIZES.items(), key=lambda one: (-one[1].parameters, one[0])):
        context = _context(name)
        needs = [smallest(size, context, parameter_bytes=BYTES[own], gpu_bytes=GPUS[gpu]) for own, gpu in columns]
        yield f"| `{name}` | {context:,} | {' | '.join(str(one.layout) for one in needs)} |"


def _size(model: str) -> Size:
    named = {name.lower(): size for name, size in SIZES.items()}
    if model.lower() in named:
        return named[model.lower()]
    try:
        return size_of(Checkpoint.find(model, None))
    except ModelError as error:
        raise SettingsError(f"the size of {model} isn't known: {error}") from error


def _context(model: str) -> int:
    family = family_known(model)
    known = family.knows(model) if family is not None else None
    if known is not None and known.context is not None:
        return known.context
    return _HEAD_CONTEXT if family is None or family.task.pools else _JUDGE_CONTEXT
