"""Estimates for a run before it starts: tokens, responses, rejected rows, seconds, GPU-hours, cost. Needs no GPU.

1. Resolve the run exactly as `score` does (`resolve_run`).
2. Read and render a random sample of its rows, or all of them, as the run does (`block_sampling`, `tally`).
3. Estimate the totals (`intervals`), choose the engine's layout (`layouts`), and compute time and cost (`cost`).
"""

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from actors.capacity.cards import NO_GPU
from actors.capacity.layout import Need, Size
from actors.capacity.sizes import size_of_model
from actors.errors import SettingsError
from actors.settings.replica import TooLong
from pipelines.data.corpus.corpus_files import InputFile, Range
from pipelines.data.corpus.readers import read_group
from pipelines.data.corpus.units import Unit, cut, group, task_bytes
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import ResolvedRun
from pipelines.run.prepare.score_requests import Preparation, prepare, prepared_rows
from pipelines.run.runtime.workers import workers
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.workflows.estimate.block_sampling import BlockSampler, OnProgress, Sample, ignore_end
from pipelines.workflows.estimate.cost import CostBasis, CostEstimate, estimate_cost
from pipelines.workflows.estimate.intervals import Estimate, totals
from pipelines.workflows.estimate.layouts import layout_for
from pipelines.workflows.estimate.tally import QUANTITIES, Tally

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_NAMED = 3  # files in a message


@dataclass(frozen=True)
class CorpusPlan:
    """The estimates for a run. `lengths` are quantiles of a response's prompt tokens; `longest` is the longest prompt seen.

    `looked` says how many rows and blocks were sampled, and whether the totals are exact.
    """

    shape_found: str
    model: str
    identity: Mapping[str, Any]
    files: Sequence[InputFile]
    looked: Mapping[str, Any]
    totals: Mapping[str, Estimate]
    reasons: Mapping[str, float]
    lengths: Mapping[float, int]
    longest: int
    context: int
    part_rows: int
    layout: Need | None
    basis: CostBasis
    bill: CostEstimate
    gpu_price: float | None
    left_out: Sequence[str] = ()
    beginnings: Sequence[str] = ()  # files of which only the beginning was read

    @property
    def assumptions(self) -> tuple[str, ...]:
        if not self.beginnings:
            return self.bill.assumptions
        names = ", ".join(self.beginnings[:_NAMED]) + (", ..." if len(self.beginnings) > _NAMED else "")
        return (f"the rest of {names} is like its beginning, which alone was read; --full reads all", *self.bill.assumptions)

    @property
    def parts(self) -> Estimate:
        # Slightly low: the end of an input file ends a part, too.
        return Estimate(*(math.ceil(rows / self.part_rows) for rows in self.totals["rows"]))

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "identity": self.identity,
            "files": [{"name": file.name, "size": file.size, "fingerprint": file.fingerprint} for file in self.files],
            "left_out": self.left_out,
            "looked": self.looked,
            **{name: estimate._asdict() for name, estimate in self.totals.items()},
            "reasons": self.reasons,
            "lengths": {f"{quantile:g}": tokens for quantile, tokens in self.lengths.items()} | {"longest": self.longest},
            "max_model_len": self.identity["max_model_len"],
            "context": self.context,
            "precision": self.basis.precision,
            "part_rows": self.part_rows,
            "parts": self.parts._asdict(),
            "layout": self.layout and self.layout.as_json(),
            **self.bill.as_json(),
            "gpu_price": self.gpu_price,
            "assumptions": self.assumptions,
        }


def corpus_plan(settings: PlanSettings, on_progress: OnProgress = lambda done, total: None) -> CorpusPlan:
    """Estimate a run, by a random sample of its rows or, with `full`, by all of them; nothing is written.

    Raises the `UserError`s that `score` would raise for the same settings, and those of a layout that doesn't fit.
    """
    run = settings.as_score()
    more_rows = settings.look.rows
    plan = resolve_run.resolve(run, weights=False, more_rows=more_rows)  # config.json and the tokenizer are enough
    if settings.look.full and more_rows is not None:
        raise SettingsError("--full counts the rows of INPUTS, and --rows says that the corpus has more: give either")
    model = plan.preparation.model
    seed = settings.look.sample_seed
    if settings.look.full:
        sample, sampled = _tally_all(plan, settings, on_progress)
        estimates = {name: Estimate.exact(value) for name, value in zip(QUANTITIES, sample.seen.values, strict=True)}
    else:
        count = functools.partial(_tally_table, preparation=plan.preparation)
        sampler = BlockSampler(count, settings.corpus.max_record_bytes, plan.row_bytes, seed, on_progress)
        sample = sampler.sample(plan.files, settings.look.sample_rows)
        sample = sample if more_rows is None else sample.of_more_rows(more_rows)
        estimates = totals(sample.parts, sample.seen.values, seed)
        sampled = {"rows": sample.seen.rows, "blocks": sample.blocks, "seed": seed}
    if settings.render.too_long is TooLong.REJECT:
        estimates["truncated"] = Estimate.exact(0)  # only `too_long: trim-turns` truncates
    if not estimates["tokens"].value:
        # Every sampled response was rejected, so the lengths of the others are unknown. Upper bound: each response that may
        # be accepted fills the context.
        accepted = estimates["responses"].high - estimates["rejected"].low
        estimates |= {name: Estimate(0.0, 0.0, accepted * model.max_model_len) for name in ("tokens", "read_tokens")}
    # The layout needs memory for a whole prompt and its answer: for the context that was trained, not for what was sampled.
    context = settings.card.context or model.context
    size = None if model.remote else _size(settings.model.model)
    on_cpus = settings.card.gpu == NO_GPU
    layout = None if size is None or on_cpus else layout_for(size, settings.card, context, model.dtype)
    # As JSON has it: it is compared with that of an earlier run, which was read from a manifest.
    identity: dict[str, Any] = json.loads(json.dumps(manifest_of(plan, run).identity))
    basis = CostBasis(model, identity, settings.card, layout.layout if layout else None, size, settings.work)
    bill = estimate_cost(estimates, basis, settings.bill)
    if more_rows is not None:
        bill = replace(bill, assumptions=(f"all {more_rows:,} rows are like those that were given", *bill.assumptions))
    return CorpusPlan(
        shape_found=plan.shape_found,
        model=model.model,
        identity=identity,
        files=plan.files,
        looked={**sampled, "exact": all(estimate.is_exact for estimate in estimates.values())},
        totals=estimates,
        reasons={reason: float(count) for reason, count in sample.reasons.most_common()},
        lengths=quantiles(sample.lengths),
        longest=sample.seen.longest,
        context=context,
        part_rows=plan.part_rows,
        layout=layout,
        basis=basis,
        bill=bill,
        gpu_price=settings.bill.gpu_price,
        left_out=plan.left_out,
        beginnings=sample.beginnings,
    )


def quantiles(lengths: Mapping[int, float]) -> dict[float, int]:
    """Weighted quantiles: for each share of `QUANTILES` the shortest length that is no shorter than that share of them."""
    ordered = sorted(lengths.items())
    sums = list(itertools.accumulate(weight for _, weight in ordered))
    if not sums:
        return {}
    # 1e-12: weights are floats, and their running sum may end just below the share that it equals.
    return {
        share: next(
            length for (length, _), weight in zip(ordered, sums, strict=True) if weight >= share * sums[-1] * (1 - 1e-12)
        )
        for share in QUANTILES
    }


def _tally_all(plan: ResolvedRun, settings: PlanSettings, on_progress: OnProgress) -> tuple[Sample, dict[str, Any]]:
    """Count all rows, read and prepared by the same steps as in the run, on all CPUs.

    Workers return counters only, so no row crosses Ray.
    """
    size = sum(file.size for file in plan.files)
    max_bytes = task_bytes(size, settings.as_score().work.unit_bytes)
    units: list[Unit] = []
    for file in plan.files:
        if file.extent != 0:
            units += cut(file, None if file.extent is None else [Range(0, file.extent)], [], max_bytes)
    groups = list(group(units, max_bytes))
    sample = Sample()
    with workers(len(groups)) as pool:
        tasks = ((neighbours, plan.preparation, settings.corpus.max_record_bytes) for neighbours in groups)
        for tally in pool.map(_tally_units, tasks):
            sample.add([tally], 1)
            on_progress(sample.seen.rows, 0)
    return sample, {"rows": sample.seen.rows, "blocks": len(units), **({"bytes": size} if units else {})}


def _tally_units(units: Sequence[Unit], preparation: Preparation, max_record_bytes: int) -> Tally:
    tally = Tally()
    for table in read_group(units, max_record_bytes, ignore_end):
        tally.join(_tally_table(table, preparation))
    return tally


def _tally_table(table: pa.Table, preparation: Preparation) -> Tally:
    return Tally().add(prepared_rows(prepare(table, preparation)), preparation.model)


def _size(model: str) -> Size | None:
    try:
        return size_of_model(model)
    except SettingsError:  # the weights aren't downloaded, and the model isn't in the table of sizes
        return None
