"""vLLM's engine arguments: which of them the user may set, and the values of the others. Imports no vLLM."""

import ast
import difflib
import importlib.util
import itertools
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from actors.engine.protocol import Task
from actors.errors import SettingsError
from actors.settings.replica import EngineSettings

SAME_NUMBERS = frozenset(
    {
        *("async_scheduling", "block_size", "cpu_offload_gb", "cudagraph_capture_sizes", "disable_custom_all_reduce"),
        *("disable_log_stats", "distributed_executor_backend", "distributed_timeout_seconds", "download_dir"),
        *("enable_chunked_prefill", "enable_expert_parallel", "enable_lora", "enable_prefix_caching", "enforce_eager"),
        *("gpu_memory_utilization", "kv_cache_memory_bytes", "long_prefill_token_threshold", "max_cpu_loras"),
        *("max_cudagraph_capture_size", "max_lora_rank", "max_loras", "max_num_batched_tokens", "max_num_scheduled_tokens"),
        *("max_num_seqs", "max_parallel_loading_workers", "num_gpu_blocks_override", "ray_workers_use_nsight"),
        *("safetensors_load_strategy", "scheduling_policy", "seed", "shutdown_timeout", "use_tqdm_on_load"),
    }
)
"""Arguments that change an engine's speed and capacity, and no score. Any other one may change scores (`quantization`,
`load_format`, and those of the next vLLM), so it is part of a run's identity."""

OURS = {
    "model": "`model` of the model settings is it",
    "revision": "`revision` of the model settings is it",
    "dtype": "`dtype` of the model settings is it",
    "max_model_len": "`max_model_len` of the render settings is it",
    "tensor_parallel_size": "`tensor_parallel` is it",
    "pipeline_parallel_size": "`pipeline_parallel` is it",
    "runner": "it follows from the model's family",
    "convert": "it follows from the model's family",
    "pooler_config": "rewards are raw logits",
    "skip_tokenizer_init": "it follows from the model's family",
    "logprobs_mode": "verdicts are raw log-probabilities",
    "enable_log_requests": "user text stays out of logs",
}
"""Arguments that Assay sets, and why or where; a user who gives one of them is told this."""

BODY_FORMAT, LEFT_OUT = "assay-body", "left_out"
"""vLLM's `load_format` for a body without its head's tensors (`body_loader`), and the key of those that it leaves out."""
_BODY_WORKER = "actors.engine.body_loader.BodyWorker"

# What the fake engine takes: faults to inject.
FAKE_ARGUMENTS = {"at": "dict[str, str]", "die_after": "int | None", "latency_s": "float"}

ONE_AT_A_TIME = {"max_num_seqs": 1, "enable_prefix_caching": False}
"""A deterministic engine's arguments on a CPU, whose matrix products add up in another order beside other prompts."""

# Annotations of plain values, in words, and their types. Values of others are vLLM's own to check.
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("text", (str,)),
    "bool": ("true or false", (bool,)),
    "None": ("null", (type(None),)),
}
_CLASSES = frozenset({"EngineArgs", "AsyncEngineArgs"})  # the second inherits from the first, in vLLM's same file
# The values of `max_lora_rank` that vLLM allows; an adapter of another rank takes the next larger one.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def arguments_identity(settings: EngineSettings) -> dict[str, Any]:
    """The user's arguments that may change scores, for a run's identity. None of the fake engine's: they are its faults."""
    if not settings.is_vllm:
        return {}
    arguments = settings.engine_args
    kernels = {"deterministic": True} if settings.deterministic else {}
    return kernels | {name: arguments[name] for name in sorted(arguments.keys() - SAME_NUMBERS)}


def check_arguments(user: Mapping[str, Any], supported: Set[str]) -> None:
    """Raise `SettingsError` for an argument that vLLM doesn't know, or that isn't the user's to set.

    The message names up to three arguments that are spelled alike, or the setting of ours.
    """
    for name in user:
        if name in OURS:
            raise SettingsError(f"engine_args can't hold {name!r}: {OURS[name]}")
        if name not in supported:
            close = difflib.get_close_matches(name, supported - OURS.keys())
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see vLLM's AsyncEngineArgs"
            raise SettingsError(f"engine_args holds {name!r}, which vLLM doesn't know: {hint}")


def check_installed(settings: EngineSettings) -> None:
    """Check names and values before an engine starts: vLLM's by its source, if it is here, as its import takes seconds.

    Raises `SettingsError`. vLLM's own messages for a wrong value name neither the argument nor what it must be.
    """
    if not settings.is_vllm:
        for name in settings.engine_args:
            if name not in FAKE_ARGUMENTS:
                raise SettingsError(f"engine_args holds {name!r}, and the fake engine takes {', '.join(FAKE_ARGUMENTS)}")
        _check_values(settings.engine_args, FAKE_ARGUMENTS)
    elif settings.engine_args and (source := _installed_source()) is not None:
        annotations = fields_in(source.read_text(encoding="utf-8"))
        check_arguments(settings.engine_args, annotations.keys())
        _check_values(settings.engine_args, annotations)


def _check_values(user: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Raise `SettingsError` for a value of another kind than the argument's, where that is a plain one."""
    for name, value in user.items():
        kinds = annotations[name].split(" | ")
        if _KINDS.keys() >= set(kinds) and not any(_is_of(value, kind) for kind in kinds):
            allowed = " or ".join(_KINDS[kind][0] for kind in kinds)
            raise SettingsError(f"engine_args: {name} = {value!r} must be {allowed}")


def _is_of(value: object, kind: str) -> bool:
    # Python's True is an int: without the second half `max_num_seqs: true` would pass as 1.
    return isinstance(value, _KINDS[kind][1]) and isinstance(value, bool) == (kind == "bool")


def fields_in(source: str) -> dict[str, str]:
    """The fields of vLLM's dataclasses `EngineArgs` and `AsyncEngineArgs` with their annotations, out of their source."""
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name in _CLASSES)
    statements = itertools.chain.from_iterable(node.body for node in classes)
    annotated = (node for node in statements if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
    return {node.target.id: ast.unparse(node.annotation) for node in annotated if isinstance(node.target, ast.Name)}


def _installed_source() -> Path | None:
    vllm = importlib.util.find_spec("vllm")
    return None if vllm is None or vllm.origin is None else Path(vllm.origin).with_name("engine") / "arg_utils.py"


def check_adapter_precision(precision: str, *, on_cpu: bool) -> None:
    """Raise `SettingsError` for an adapter of a float32 model on a GPU: vLLM's kernels fail there with an empty message."""
    if not on_cpu and precision.endswith("float32"):
        raise SettingsError(
            "an adapter on a GPU takes a model in bfloat16 or float16, and this one runs in float32: --set dtype=bfloat16, "
            "or merge the adapter into the model"
        )


def cpu_shares(cpus: Sequence[int], workers: int) -> str:
    """The CPUs of each worker, in vLLM's syntax ("0,1|2,3"). By default vLLM wants a NUMA node for each.

    More workers than CPUs share them, so that each has at least one.
    """
    edges = [len(cpus) * position // workers for position in range(workers + 1)]
    shares = [cpus[first:last] or [cpus[first % len(cpus)]] for first, last in itertools.pairwise(edges)]
    return "|".join(",".join(map(str, share)) for share in shares)


def engine_arguments(
    task: Task,
    settings: EngineSettings,
    *,
    on_cpu: bool,
    adapter_rank: int | None = None,
    placed: bool = False,
    left_out: Sequence[str] = (),
) -> dict[str, Any]:
    """Arguments beside those of the model: defaults, over them the user's, over these the ones that only Assay sets.

    A `placed` engine has its GPUs in a placement group of Ray. Tensors whose names begin as `left_out` says aren't
    loaded.
    """
    arguments: dict[str, Any] = {"disable_log_stats": True, "trust_remote_code": False}
    if settings.tensor_parallel * settings.pipeline_parallel > 1:
        arguments["distributed_executor_backend"] = "ray" if placed else "mp"
    elif on_cpu:
        arguments["distributed_executor_backend"] = "actors.engine.vllm_core.SingleWorker"
    if on_cpu:
        # Compiling takes longer than it saves, and its cache isn't safe between layouts. In a pipeline enforce_eager
        # fails on CPU (the tensors passed between stages are never allocated); a compilation that does nothing works.
        arguments |= (
            {"enforce_eager": True}
            if settings.pipeline_parallel == 1
            else {"compilation_config": {"mode": 2, "backend": "eager"}}
        )
    if not task.pools:
        # JSON allows any white space between its fields, and a model may write that until its tokens run out.
        arguments["structured_outputs_config"] = {"backend": "guidance", "disable_any_whitespace": True}
    if on_cpu and not task.pools:
        # vLLM 0.32 kills the whole engine when a prompt with a seed is read in chunks: a CPU's generator can't be rewound.
        arguments["enable_chunked_prefill"] = False
    if adapter_rank is not None:
        if adapter_rank > _RANKS[-1]:
            raise SettingsError(f"the adapter has rank {adapter_rank}, and vLLM takes at most {_RANKS[-1]}; merge it")
        arguments |= {"enable_lora": True, "max_lora_rank": next(rank for rank in _RANKS if rank >= adapter_rank)}
    # What the user can't change, nor may believe to have changed.
    fixed: dict[str, Any] = dict(ONE_AT_A_TIME) if on_cpu and settings.deterministic else {}
    if left_out:
        fixed |= {"load_format": BODY_FORMAT, "model_loader_extra_config": {LEFT_OUT: list(left_out)}}
        fixed["worker_extension_cls"] = _BODY_WORKER
    if conflicts := sorted(settings.engine_args.keys() & fixed.keys()):
        why = (
            "a deterministic engine on a CPU sets it itself"
            if conflicts[0] in ONE_AT_A_TIME
            else "the head of this model is loaded apart from it"
        )
        raise SettingsError(f"engine_args can't hold {conflicts[0]!r}: {why}; leave it out")
    return {
        **arguments,
        **settings.engine_args,
        **fixed,
        "runner": "pooling" if task.pools else "generate",
        # By "auto" vLLM decides by the architecture's name, and takes "embed" for one that it can't tell.
        "convert": "embed" if task is Task.EMBED else "classify" if task.pools else "auto",
        "skip_tokenizer_init": task.pools,
        "tensor_parallel_size": settings.tensor_parallel,
        "pipeline_parallel_size": settings.pipeline_parallel,
        "enable_log_requests": False,
    }
