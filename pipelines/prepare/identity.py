"""The identity of a run: every setting and model file that decides its numbers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from actors.contracts.judge import Judge
from actors.engine import engine_arguments
from actors.records import Reasoning
from actors.reward_model import RewardModel
from pipelines.formats import PROMPT_READER, PROMPT_SHAPES, ROW_READER, SHAPES
from pipelines.prepare.resolve_run import ResolvedRun
from pipelines.run_folder.manifest import Manifest, provenance
from pipelines.settings.run_settings import JudgingSettings


def manifest_of(plan: ResolvedRun, settings: JudgingSettings, more: Mapping[str, Any] = MappingProxyType({})) -> Manifest:
    """The manifest of a run that is about to start. `more` are further entries of the identity.

    A value that is added here makes runs with another value incompatible, and lets no older run be resumed; entries that are
    left out at their defaults don't.
    """
    model, rows = plan.preparation.model, plan.preparation.row_shape
    identity = {
        "model": model.model,
        "revision": model.revision,
        "weights": model.fingerprint,
        "family": model.family_name,
        "template": model.template_hash,
        "tokenizer": model.tokenizer_hash,
        "config": model.config_hash,
        "dtype": model.dtype,
        "max_model_len": model.max_model_len,
        "reward_weights": dict(model.weights),
        "read": model.read.model_dump(mode="json", exclude_defaults=True),
        **_judge(model),
        "engine": settings.engine.engine,
        **engine_arguments.arguments_identity(settings.engine),
        "shape": rows.name,
        **({"shapes": sorted(PROMPT_SHAPES if rows.unanswered else SHAPES)} if rows.is_mixed else {}),
        "own_columns": rows.own_columns and rows.own_columns.recorded(),
        **({"principle_column": column} if (column := rows.principle_column) else {}),
        **({"prompt_reader": PROMPT_READER} if rows.unanswered else {"row_reader": ROW_READER}),
        "turns": rows.turns,
        "render": settings.render.model_dump(mode="json", exclude={"reasoning"}),
        "reasoning": (model.reasoning_by(settings.render) or Reasoning.REJECT).value,
        "limit": settings.corpus.limit,
        "max_record_bytes": settings.corpus.max_record_bytes,
        "prefix": settings.prefix,
        **more,
    }
    return Manifest(identity, plan.files, plan.preparation.columns, provenance(settings))


def _judge(model: RewardModel) -> dict[str, Any]:
    """How a judge is prompted and its text read, and its adapter; empty for a reward head."""
    if model.task.pools or not isinstance(model.family, Judge):
        return {}
    adapter = {"adapter": model.adapter} if model.adapter else {}
    return {"judge": model.family.recorded(model.answer_tokens), **adapter}
