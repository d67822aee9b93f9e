"""What was done, and what it came to: counts by status and reason, model, engine, time and cost."""

import json
from collections.abc import Mapping
from typing import Any

from actors.text.model_names import short_name
from pipelines.data import storage
from pipelines.folders.run_folder.columns import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    REASON,
    REASONED,
    STATUS,
    SUSPECT,
    TRUNCATED,
    WITHIN_ROW,
)
from pipelines.folders.run_folder.member_runs import CASCADE, MEMBERS, is_fake, member_work
from pipelines.folders.scored_corpus.cascade_lines import cascade_lines
from pipelines.results.evaluation.results import MADE_UP
from pipelines.results.html_report.responses import Responses
from pipelines.results.html_report.shown_text import show
from pipelines.run.runtime.progress import duration

_IDENTITY_CHARACTERS = 20_000  # a rubric or a template may be far longer


def overview(responses: Responses, gpu_price: float | None) -> dict[str, Any]:
    """Counts over all responses, facts of the run, and what must be known before any figure is read."""
    manifest, columns = responses.corpus.manifest, responses.columns
    status, reason = responses.name(STATUS), responses.name(REASON)
    notes = [MADE_UP] if is_fake(manifest) else []
    if responses.corpus.kept is not None:
        notes.append(f"These are the responses that a filter kept: {show(responses.corpus.kept.about, 300)}.")
    if not responses.corpus.is_complete:
        notes.append("The run wasn't complete when this page was made: it shows the parts that were there.")
    if columns.within_row:
        notes.append(f"Mind that {WITHIN_ROW}; a cut over all of them says little.")
    return {
        "statuses": dict(responses.query(f"select {status}, count(*) from parts group by 1 order by 2 desc, 1")),
        "reasons": responses.query(
            f"select {status}, {reason}, count(*) from parts where {reason} is not null group by all order by 3 desc, 1, 2"
        ),
        "facts": _facts(responses, gpu_price),
        "identity": show(json.dumps(dict(manifest.identity), indent=2, ensure_ascii=False), _IDENTITY_CHARACTERS),
        "notes": notes,
    }


def _facts(responses: Responses, gpu_price: float | None) -> dict[str, str]:
    manifest, columns = responses.corpus.manifest, responses.columns
    counted = {"responses": "count(*)", "prompt tokens": f"sum({responses.name(PROMPT_TOKENS)})"}
    counted["truncated responses"] = f"count(*) filter ({responses.name(TRUNCATED)})"
    if columns.votes:
        counted["tokens that the judge wrote"] = f"sum({responses.name(COMPLETION_TOKENS)})"
    if REASONED in columns.flags:
        counted["responses with reasoning in them or before them"] = f"count(*) filter ({responses.name(REASONED)})"
    if SUSPECT in columns.flags:
        counted["suspect responses"] = f"count(*) filter ({responses.name(SUSPECT)})"
    (totals,) = responses.query(f"select {', '.join(counted.values())} from parts")
    return {
        "folder": responses.folder,
        "model": ", ".join(manifest.identity[MEMBERS])
        if MEMBERS in manifest.identity
        else short_name(str(manifest.identity.get("model"))),
        "engine": "fake" if is_fake(manifest) else "vLLM",
        **{name: f"{total or 0:,}" for name, total in zip(counted, totals, strict=True)},
        **{name: str(manifest.made_with[name]) for name in ("assay", "vllm", "ray") if manifest.made_with.get(name)},
        **_work_facts(_work(responses), gpu_price),
        **(dict(cascade_lines(figures)) if (figures := (manifest.summary or {}).get(CASCADE)) else {}),
    }


def _work(responses: Responses) -> Mapping[str, Any]:
    manifest = responses.corpus.manifest
    if MEMBERS in manifest.identity:
        # An ensemble has no engine itself: its models' work is added up.
        return member_work(storage.absolute(responses.corpus.folder), manifest)
    return (manifest.summary or {}).get("work") or {}


def _work_facts(work: Mapping[str, Any], gpu_price: float | None) -> dict[str, str]:
    facts = {} if work.get("seconds") is None else {"time": duration(work["seconds"])}
    if work.get("why"):
        facts["time"] = f"unknown: {work['why']}"
    if work.get("engines"):
        facts["engines"] = f"{work['engines']:,}"
    if cached := work.get("cached_tokens"):
        facts["prompt tokens computed"] = f"{work['computed_tokens']:,}, and {cached:,} cached"
    gpu_hours: float | None = work.get("gpu_hours")
    if gpu_hours is not None:
        facts["GPU-hours"] = f"{gpu_hours:,.2f}"
    if gpu_price is not None:
        unknown = "unknown: the GPU-hours of the run aren't known"
        facts["cost"] = unknown if gpu_hours is None else f"{gpu_hours * gpu_price:,.2f}"
    return facts
