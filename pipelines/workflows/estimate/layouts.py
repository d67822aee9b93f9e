"""GPU layouts for display: of a model, with the arithmetic; and a table of all published models in `SIZES`."""

from collections.abc import Iterator

from actors.capacity.layout import BYTES, GPUS, Layout, Need, Size, check_layout, precision_of, smallest_layout
from actors.capacity.sizes import SIZES, size_of_model
from actors.errors import SettingsError
from actors.reward_model import family_known
from actors.settings.replica import Dtype
from pipelines.settings.estimate_settings import CardSettings, LayoutSettings

_HEAD_CONTEXT, _JUDGE_CONTEXT = 8192, 32_768
"""Tokens, for models whose card doesn't state the context that they were trained on; a judge's includes what it writes."""


def layout_of(settings: LayoutSettings) -> Need:
    """The layout that the settings give, or the smallest that fits. Raises `SettingsError` with the arithmetic."""
    if settings.model is None:
        raise SettingsError("--model is missing; --table shows the layouts of all published ones")
    size = size_of_model(settings.model)
    dtype = size.dtype if settings.dtype is Dtype.AUTO else settings.dtype.value
    return layout_for(size, settings, settings.context or _context(settings.model), dtype)


def layout_for(size: Size, card: CardSettings, context: int, dtype: str) -> Need:
    """The layout of a model of this size and `dtype`, for prompts and answers up to `context`. Raises as `layout_of`."""
    limits = {"parameter_bytes": BYTES[card.precision or precision_of(dtype)], "gpu_bytes": GPUS[card.gpu]}
    if card.tensor_parallel is None:
        if card.pipeline_parallel > 1:
            raise SettingsError("pipeline_parallel goes with --tensor-parallel")
        return smallest_layout(size, context, **limits, per_node=card.gpus_per_node)
    layout = Layout(card.tensor_parallel, card.pipeline_parallel)
    return check_layout(size, layout, context, **limits, per_node=card.gpus_per_node)


def layout_table() -> Iterator[str]:
    """The lines of a table in Markdown: the smallest layout of every model, on both cards, in 16 bits and in 8."""
    names = {"bfloat16": "BF16", "fp8": "FP8"}
    columns = [(precision, gpu) for precision in names for gpu in GPUS]
    yield f"| model | context | {' | '.join(f'{names[precision]}, {gpu}' for precision, gpu in columns)} |"
    yield f"|---|---|{'---|' * len(columns)}"
    for name, size in sorted(SIZES.items(), key=lambda item: (-item[1].parameters, item[0])):
        context = _context(name)
        needs = [
            smallest_layout(size, context, parameter_bytes=BYTES[precision], gpu_bytes=GPUS[gpu])
            for precision, gpu in columns
        ]
        yield f"| `{name}` | {context:,} | {' | '.join(str(need.layout) for need in needs)} |"


def _context(model: str) -> int:
    family = family_known(model)
    card = family.knows(model) if family is not None else None
    if card is not None and card.context is not None:
        return card.context
    return _HEAD_CONTEXT if family is None or not family.task.writes else _JUDGE_CONTEXT
