"""GPU layouts for display: of a model, with the arithmetic and `score`'s options; and a table of all models in `SIZES`."""

from collections.abc import Iterator

from actors.capacity.cards import NO_GPU, find_card
from actors.capacity.layout import USED, Layout, Need, Size, check_layout, precision_of, smallest_layout
from actors.capacity.sizes import SIZES, size_of_model
from actors.errors import SettingsError
from actors.reward_model import family_known
from actors.settings.replica import Dtype
from pipelines.settings.estimate_settings import CardSettings, LayoutSettings

# Tokens, for models whose card doesn't state the context that they were trained on; a judge's includes what it writes.
_HEAD_CONTEXT, _JUDGE_CONTEXT = 8192, 32_768


def layout_of(settings: LayoutSettings) -> tuple[Need, str]:
    """The layout that the settings give, or the smallest that fits; and the options of `score` for it.

    Raises `SettingsError` with the arithmetic.
    """
    if settings.model is None:
        raise SettingsError("--model is missing; --table shows the layouts of all published ones")
    size = size_of_model(settings.model)
    dtype = size.dtype if settings.dtype is Dtype.AUTO else settings.dtype.value
    chosen = layout_for(size, settings, settings.context or _context(settings.model), dtype)
    return chosen, engine_options(size, settings, chosen.layout, dtype)


def engine_options(size: Size, card: CardSettings, layout: Layout, dtype: str) -> str:
    """The options of `score` for engines of this layout and `dtype`, as on a command line; empty if all are defaults."""
    options = [f"--tensor-parallel {layout.tensor_parallel}"] if layout.tensor_parallel > 1 else []
    arguments: dict[str, str] = {}
    if size.active is not None and layout.tensor_parallel > 1:
        arguments["enable_expert_parallel"] = "true"  # a GPU then has some experts whole, and no part of each
    if "gpu_memory_utilization" in card.model_fields_set:
        arguments["gpu_memory_utilization"] = f"{card.gpu_memory_utilization:g}"
    if card.precision == "fp8" and size.quantised is None:
        arguments["quantization"] = "fp8"
    if layout.pipeline_parallel > 1:
        options.append(f"--set engine.pipeline_parallel={layout.pipeline_parallel}")
    # vLLM computes weights that it quantises in 16 bits.
    if (planned := precision_of(card.precision or dtype)) != precision_of(size.dtype):
        options.append(f"--set model.dtype={planned}")
    return " ".join([*options, *(f"--set engine.engine_args.{name}={value}" for name, value in arguments.items())])


def layout_for(size: Size, card: CardSettings, context: int, dtype: str) -> Need:
    """The layout of a model of this size and `dtype`, for prompts and answers up to `context`. Raises as `layout_of`."""
    if card.gpu == NO_GPU:
        raise SettingsError("a machine without GPUs has no layout of them; name a card with --gpu")
    gpu = find_card(card.gpu)
    per_node = card.gpus_per_node or gpu.per_node
    parameter_bytes = size.bytes_in(card.precision or size.quantised or precision_of(dtype))
    # A layout is judged by the share `USED` of a card: another share of the memory is a card of another size.
    limits = {"parameter_bytes": parameter_bytes, "gpu_bytes": gpu.memory * card.gpu_memory_utilization / USED}
    if card.tensor_parallel is None:
        if card.pipeline_parallel > 1:
            raise SettingsError("pipeline_parallel goes with --tensor-parallel")
        return smallest_layout(size, context, **limits, per_node=per_node)
    layout = Layout(card.tensor_parallel, card.pipeline_parallel)
    return check_layout(size, layout, context, **limits, per_node=per_node)


def layout_table() -> Iterator[str]:
    """The lines of a table in Markdown: the smallest layout of every model, on some cards, in 16, 8 and 4 bits."""
    names = {"bfloat16": "BF16", "fp8": "FP8", "nvfp4": "NVFP4"}
    columns = [*(("bfloat16", gpu) for gpu in ("H100", "H200", "B200")), ("fp8", "H100"), ("fp8", "H200"), ("nvfp4", "B200")]
    yield f"| model | context | {' | '.join(f'{names[precision]}, {gpu}' for precision, gpu in columns)} |"
    yield f"|---|---|{'---|' * len(columns)}"
    for name, size in sorted(SIZES.items(), key=lambda item: (-item[1].parameters, item[0])):
        context = _context(name)
        needs = [
            layout_for(size, CardSettings(gpu=gpu, precision=precision), context, precision) for precision, gpu in columns
        ]
        yield f"| `{name}` | {context:,} | {' | '.join(str(need.layout) for need in needs)} |"


def _context(model: str) -> int:
    family = family_known(model)
    card = family.knows(model) if family is not None else None
    if card is not None and card.context is not None:
        return card.context
    return _HEAD_CONTEXT if family is None or not family.task.writes else _JUDGE_CONTEXT
