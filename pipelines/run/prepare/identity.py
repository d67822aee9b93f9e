"""The identity of a run, and of the scores in a store: every setting and model file that decides the numbers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from actors.records import Reasoning
from actors.reward_model import RewardModel
from actors.settings.replica import EngineSettings
from pipelines.data.formats import PROMPT_READER, PROMPT_SHAPES, ROW_READER, SHAPES
from pipelines.folders.run_folder.manifest import Manifest, provenance, versions
from pipelines.folders.score_store.open_store import OpenStore, open_store
from pipelines.run.prepare.resolve_run import ResolvedRun
from pipelines.settings.run_settings import JudgingSettings


def manifest_of(plan: ResolvedRun, settings: JudgingSettings, more: Mapping[str, Any] = MappingProxyType({})) -> Manifest:
    """The manifest of a run that is about to start. `more` are further entries of the identity.

    A value that is added here makes runs with another value incompatible.
    """
    model, rows = plan.preparation.model, plan.preparation.row_shape
    shapes = PROMPT_SHAPES if rows.unanswered else SHAPES
    identity = {
        "model": model.model,
        "revision": model.revision,
        **model.identity_on(settings.engine),
        "adapter": model.adapter,
        "shape": rows.name,
        "shape_plugin": shapes.plugin_of(rows.name),
        **({"shapes": {name: shapes.plugin_of(name) for name in sorted(shapes)}} if rows.is_mixed else {}),
        "own_columns": rows.own_columns and rows.own_columns.recorded(),
        "fields": dict(rows.columns),
        **({"prompt_reader": PROMPT_READER} if rows.unanswered else {"row_reader": ROW_READER}),
        "written_out": rows.written_out,
        "turns": rows.turns,
        "render": settings.render.recorded(),
        "limit": settings.corpus.limit,
        "max_record_bytes": settings.corpus.max_record_bytes,
        "prefix": settings.prefix,
        # What an endpoint says of its own prompts and revision holds, and not what would be done here.
        **({} if model.remote is None else model.remote.identity),
        # But for this, which each request says.
        "reasoning": (model.reasoning_by(settings.render) or Reasoning.REJECT).value,
        **more,
    }
    return Manifest(identity, plan.files, plan.preparation.columns, provenance(settings))


def scoring_identity(model: RewardModel, engine: EngineSettings) -> dict[str, Any]:
    """All that decides the scores of a rendered request, wherever the model lies and whatever the corpus: for a store.

    With the versions of Assay and vLLM, as what a new version mends must not come back from a store.
    """
    return {
        **model.tracing.identity_on(engine),  # a store keeps a judge's texts, whether they are asked for or not
        "task": model.task.value,  # of the engine, which `turns: all` changes
        "one_pass": model.one_pass,
        **{name: version for name, version in versions().items() if name != "ray"},
    }


def open_score_store(
    path: str | None, model: RewardModel, engine: EngineSettings, output: str | None = None
) -> OpenStore | None:
    """The store of `--store`, opened for a model; None without. Raises as `open_store`.

    `output` is the folder of the run, in which the store may not lie: --overwrite would delete it.
    """
    if path is None:
        return None
    return open_store(path, scoring_identity(model, engine), compares=model.family.compares, apart_from=output)
