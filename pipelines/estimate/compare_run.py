"""Plan against fact: a run with `--plan` checks first that it is the planned run, and compares the numbers at its end."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from actors.errors import SettingsError
from pipelines import storage
from pipelines.estimate.forecast import VERSION, planned_identity
from pipelines.estimate.intervals import Estimate
from pipelines.run_folder.manifest import Manifest, differences
from pipelines.run_folder.parts import Parts
from pipelines.runtime.run_timing import RunWork, read_run_work
from pipelines.scored_corpus.summary import Summary
from pipelines.settings.run_settings import JudgingSettings, ScoreSettings
from pipelines.storage import error_text

_COUNTED = {
    "tokens": "prompt_tokens",
    "rows": "rows",
    "responses": "responses",
    "rejected": "rejected",
    "truncated": "truncated",
}
"""Name in a plan -> attribute of `Summary`."""


def read_plan(path: str) -> Mapping[str, Any]:
    """Read a plan that `assay plan --out` wrote. Raises `SettingsError` if it can't be read."""
    try:
        with storage.open_read(path) as stream:
            plan = json.load(stream)
        if plan["assay_plan"] != VERSION:
            raise SettingsError(f"--plan {path} was written by another version of Assay ({plan['assay_plan']})")
    except OSError as error:
        raise SettingsError(f"--plan {path} can't be read: {error_text(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"--plan {path} isn't a plan; `assay plan ... --out {path}` writes one") from error
    return dict(plan)


def check_planned(path: str | None, manifest: Manifest) -> None:
    """Raise `SettingsError`, naming every difference, if a run isn't the one that was planned."""
    if path is None:
        return
    plan = read_plan(path)
    differ = differences(plan["identity"], planned_identity(manifest))
    planned_files = {(file["name"], file["size"], file["fingerprint"]) for file in plan["files"]}
    files = {(file.name, file.size, file.fingerprint) for file in manifest.files}
    differ += [f"{name}: in the plan, but missing or changed now" for name, *_ in sorted(planned_files - files)]
    differ += [f"{name}: new or changed since the plan" for name, *_ in sorted(files - planned_files)]
    if differ:
        raise SettingsError(
            f"--plan {path} is of another run:\n  " + "\n  ".join(differ[:20]) + "\nPlan this run, or leave out --plan"
        )


def with_facts(summary: Summary, parts: Parts, settings: JudgingSettings) -> Summary:
    """Add to the summary of a complete run its timing, and the comparison with its plan if it had one."""
    work = read_run_work(parts)
    path = settings.plan if isinstance(settings, ScoreSettings) else None
    plan = {"file": path, **compare_with_estimate(read_plan(path), summary, work)} if path is not None else {}
    return replace(summary, work=work.as_json(), plan=plan)


def compare_with_estimate(plan: Mapping[str, Any], summary: Summary, work: RunWork) -> dict[str, Any]:
    """For each number the estimate with its bounds, the fact, and whether it is within them; None with a reason `why`."""
    facts: dict[str, tuple[float | None, str | None]] = {
        name: (getattr(summary, attribute), None) for name, attribute in _COUNTED.items()
    }
    if plan["written_tokens"] is not None:
        facts["written_tokens"] = (summary.completion_tokens, None)
    planned = {name: plan[name] for name in facts}
    # Without the start of the engines on both sides: a plan doesn't know how long that is, and it is most of a short run.
    planned["work_s"] = plan["work_s"]
    facts["work_s"] = (work.working, work.why or "when the first engine was ready isn't known")
    planned["gpu_hours"] = plan["gpu_hours"]
    facts["gpu_hours"] = (
        work.working_gpu_hours,
        work.why or "how many GPUs worked isn't known, as the number of engines may change",
    )
    if work.gpu_hours == 0:
        facts["gpu_hours"] = (None, "it ran without GPUs")
    price, hours = plan["gpu_price"], facts["gpu_hours"][0]
    if price is not None:
        planned["cost"] = plan["cost"]
        facts["cost"] = (None if hours is None else hours * price, facts["gpu_hours"][1])
    if plan.get("cpus") is not None:  # the plan is of CPUs, and speaks of no GPUs
        facts = {name: fact for name, fact in facts.items() if name not in ("gpu_hours", "cost")}
    return {name: _compare(planned[name], *fact) for name, fact in facts.items()}


def _compare(planned: Mapping[str, float] | None, fact: float | None, why: str | None) -> dict[str, Any]:
    if planned is None:
        why, within = "not in the plan, which had no throughput", None
        value = low = high = None
    else:
        value, low, high = planned["value"], planned["low"], planned["high"]
        within = None if fact is None else Estimate(value, low, high).holds(fact)
        why = why if fact is None else None
    return {"planned": value, "low": low, "high": high, "fact": fact, "within": within} | ({"why": why} if why else {})
