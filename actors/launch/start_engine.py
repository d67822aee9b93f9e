"""Which engine a model runs on."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from actors.checkpoint.checkpoint_files import Adapter, Checkpoint, locate
from actors.contracts.family import Family
from actors.contracts.judge import Judge
from actors.contracts.pooled_head import PooledHead
from actors.contracts.verifier import Verifier
from actors.endpoint.account import Notes
from actors.endpoint.endpoint_engine import EndpointEngine
from actors.endpoint.remote_model import RemoteModel
from actors.engine.fake_engine import IN_FLIGHT, FakeEngine, FakeFault
from actors.engine.process_engine import ProcessEngine
from actors.engine.protocol import Engine, Sampling, Task
from actors.errors import EngineError
from actors.records import Prompt
from actors.reward_model import RewardModel
from actors.settings.replica import EngineSettings
from actors.timeline import mark

ANY_OBJECT = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}
Report = Callable[[str], object]  # called with the name of each step of an engine's start, as it begins


def engine_identity(model: RewardModel, settings: EngineSettings) -> str | None:
    """What an engine is, whoever asks it: models of equal ones can share an engine. None for a verifier or an endpoint.

    The family counts only where it has a head of its own, so that two judges of one model share its engine.
    """
    if model.task is Task.VERIFY or model.remote is not None:
        return None
    started_with = (model.model, model.revision, model.adapter, model.task, model.dtype, model.context, model.labels)
    head = model.family_name if isinstance(model.family, PooledHead) else None
    return repr((*started_with, head, sorted(model.overrides.items()), settings.model_dump()))


def start_engine(
    model: RewardModel,
    settings: EngineSettings,
    *,
    online: bool = False,
    report: Report = lambda step: None,
    notes: Notes | None = None,
    warn: Report = lambda text: None,
) -> Engine:
    """Start an engine and wait until it is ready. Raises `EngineError` with the engine's own message.

    An `online` engine reads fewer tokens in a step, so that requests wait less for each other. One behind an address keeps
    in `notes` what it was asked for, and calls `warn` with what it fails by.
    """
    if model.remote is not None:
        return _endpoint_engine(model, model.remote, settings, notes, warn)
    if isinstance(verifier := model.family, Verifier):
        processes = settings.max_in_flight or max(1, (os.cpu_count() or 1) // 2)  # as many as leave room for reading rows
        return ProcessEngine(verifier.prepare, processes, settings.request_timeout_s or model.task.deadline_s)
    if settings.engine == "fake":
        try:
            return _fake_engine(model, settings, **settings.engine_args)
        except (TypeError, ValueError) as error:
            raise EngineError(f"the fake engine can't start with these engine arguments: {error}") from error
    adapter = Adapter.find(model.adapter) if model.adapter else None
    head = None
    if isinstance(family := model.family, PooledHead):
        report(f"reading the head of {model.model}")
        head = family.load(Checkpoint.find(model.model, model.revision, weights=True, files=family.head_files))
    model.family.register()
    report("importing vLLM")
    mark("import of vLLM")
    try:
        from actors.engine.vllm_engine import VllmEngine  # seconds of import, which only a process with an engine pays for
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
            raise EngineError(
                'vLLM isn\'t installed: pip install "assay[gpu]" for NVIDIA GPUs, and elsewhere "assay[cpu]" with '
                "--extra-index-url https://download.pytorch.org/whl/cpu"
            ) from error
        raise EngineError(
            f"vLLM can't be imported: {type(error).__name__}: {error}. Often a package is built for another torch than is "
            "installed: install torch, torchvision and torchaudio from one index, or leave out the last two"
        ) from error

    placement = None
    if settings.pipeline_parallel > 1:  # without Ray, all stages are on this machine
        from actors.launch.placement import place

        placement = place(settings)
    report(f"loading {model.model}")
    mark("vLLM's configuration, and the look at the model's class")
    return VllmEngine(
        locate(model.model),
        revision=model.revision,
        task=model.task,
        dtype=model.dtype,
        max_model_len=model.context,
        settings=settings,
        hf_overrides=model.overrides,
        adapter=adapter,
        head=head,
        placement=placement,
        online=online,
    )


def _endpoint_engine(
    model: RewardModel, remote: RemoteModel, settings: EngineSettings, notes: Notes | None, warn: Report
) -> EndpointEngine:
    family, probe = model.family, Sampling(1)
    if isinstance(family, Judge):
        # Of a judge whose schema differs by row, any schema tells whether the endpoint takes one.
        schema = family.card.schema or (json.dumps(ANY_OBJECT) if family.row_outputs else None)
        probe = replace(family.sampling(Prompt((), ()), 0, 0, 1), seed=None, top_k=0, schema=schema)
    return EndpointEngine(
        remote,
        probe if isinstance(family, Judge) else _greeting(family),
        opens_reasoning=isinstance(family, Judge) and family.opens_reasoning,
        max_in_flight=settings.max_in_flight,
        request_timeout_s=settings.request_timeout_s,
        notes=notes,
        warn=warn,
    )


def _greeting(family: Family) -> str:
    """The body of `/v1/rewards` about a short conversation that a served model can judge."""
    conversation = {
        "messages": [{"role": "user", "content": "Hello"}],
        "responses": ["Hi.", "Hello."],
        "principles": ["helpfulness"] if family.needs_principles else [],
        "fields": dict.fromkeys(family.field_names, "Hello"),
    }
    return json.dumps({"conversations": [conversation]})


def _fake_engine(
    model: RewardModel,
    settings: EngineSettings,
    at: Mapping[str, str] | None = None,
    die_after: int | None = None,
    latency_s: float = 0.0,
) -> FakeEngine:
    return FakeEngine(
        model.labels,
        model.context,
        max_in_flight=settings.max_in_flight or IN_FLIGHT,
        request_timeout_s=settings.request_timeout_s or model.task.deadline_s,
        latency_s=latency_s,
        at={int(token): FakeFault(fault) for token, fault in (at or {}).items()},  # JSON's keys are texts
        die_after=die_after,
        every_position=model.task.every_position,
    )
