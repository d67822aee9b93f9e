"""What a run will take, before it: tokens, responses, what is rejected, seconds, GPU-hours, money. Needs no GPU.

1. Settle the run exactly as `score` would (`resolve_run`).
2. Read and render a random sample of its rows, or all of them, as the run does (`block_sampling`, `tally`).
3. Estimate the totals (`intervals`), lay the engine out (`layouts`), and say what it costs (`cost`).

The plan can be kept in a file. A run that is given it checks that it is the run that was planned, and says at its end how
the two compare (`compare_run`).
"""

import functools
import itertools
import json
import math
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
from ray.data import DataContext

from actors.capacity.layout import Need, Size
from actors.capacity.sizes import size_of_model
from actors.errors import OutputError, SettingsError
from actors.settings.replica import TooLong
from pipelines import storage
from pipelines.corpus.corpus_files import InputFile, Range, Unit, cut
from pipelines.corpus.datasource import CorpusSource
from pipelines.estimate.block_sampling import BlockSampler, HowFar
from pipelines.estimate.cost import Bill, Ground, bill
from pipelines.estimate.intervals import Estimate, totals
from pipelines.estimate.layouts import layout_for
from pipelines.estimate.tally import AMOUNTS, COUNTS, Tally
from pipelines.prepare import resolve_run
from pipelines.prepare.identity import manifest_of
from pipelines.prepare.resolve_run import ResolvedRun
from pipelines.prepare.score_requests import Preparation, prepare, prepared_rows
from pipelines.runtime.session import check_stopped, ray_session
from pipelines.scored_corpus.manifest import Manifest
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.storage import error_text

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
VERSION = 1
_NOT_COMPARED = frozenset({"engine", "reward_weights", "engine_args"})
"""What changes no token: a rehearsal has the same."""


@dataclass(frozen=True)
class CorpusPlan:
    """A run, predicted. `lengths` are quantiles of a response's prompt tokens, `longest` the longest single prompt seen."""

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
    advice: str | None
    bill: Bill
    gpu_price: float | None
    left_out: Sequence[str] = ()

    @property
    def parts(self) -> Estimate:
        """About how many parts there will be: a file ends one, too."""
        return Estimate(*(math.ceil(rows / self.part_rows) for rows in self.totals["rows"]))

    def as_json(self) -> dict[str, Any]:
        """For `--json` and the file."""
        layout = self.layout
        return {
            "assay_plan": VERSION,
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
            "part_rows": self.part_rows,
            "parts": self.parts._asdict(),
            "layout": layout and {**layout.layout._asdict(), "gpus": layout.layout.gpus, "arithmetic": str(layout)},
            **self.bill.as_json(),
            "gpu_price": self.gpu_price,
            "assumptions": self.bill.assumptions,
        }

    def write(self, path: str) -> None:
        """Write or replace the file. Raises `OutputError`."""
        folder, _, name = storage.absolute(path).rpartition("/")
        try:
            storage.folder(folder).replace(name, (json.dumps(self.as_json(), indent=2) + "\n").encode())
        except OSError as error:
            raise OutputError(f"{path} can't be written: {error_text(error)}") from error


def corpus_plan(settings: PlanSettings, how_far: HowFar = lambda done, of: None) -> CorpusPlan:
    """Predict a run. Raises a `UserError` for whatever `score` would refuse, too."""
    run = settings.as_score()
    plan = resolve_run.resolve(run)
    model = plan.preparation.model
    if settings.look.full:
        tally, looked = _everything(plan, settings, how_far)
        found = {name: Estimate.exact(value) for name, value in zip((*AMOUNTS, *COUNTS), tally.values, strict=True)}
        lengths: Mapping[int, float] = tally.lengths
        reasons: Mapping[str, float] = tally.reasons
        longest = tally.longest
    else:
        count = functools.partial(tally_table, preparation=plan.preparation)
        row_bytes, seed = resolve_run.rows_and_bytes(plan.files, settings.corpus)[1], settings.look.sample_seed
        sampler = BlockSampler(count, settings.corpus.max_record_bytes, row_bytes, seed, how_far)
        sample = sampler.sample(plan.files, settings.look.sample_rows)
        found = totals(sample.strata, AMOUNTS, COUNTS)
        lengths, reasons, longest = sample.lengths, sample.reasons, sample.longest
        looked = {"rows": sample.rows, "blocks": sample.blocks, "seed": seed}
    if settings.render.too_long is TooLong.REJECT:
        found["truncated"] = Estimate.exact(0)  # only --too-long trim-turns does that
    if not found["tokens"].value:  # none was seen that is taken; those that may be there are as long as may be
        taken = found["responses"].high - found["rejected"].low
        found |= {name: Estimate(0.0, 0.0, taken * model.max_model_len) for name in ("tokens", "read_tokens")}
    context = settings.card.context or model.context
    size = _size(settings.model.model)
    layout, advice = _layout(settings, size, context, longest + model.answer_tokens)
    identity = planned_identity(manifest_of(plan, run))
    ground = Ground(model, identity, settings.card, layout.layout if layout else None, size)
    return CorpusPlan(
        shape_found=plan.shape_found,
        model=model.model,
        identity=identity,
        files=plan.files,
        looked={**looked, "exact": all(estimate.is_exact for estimate in found.values())},
        totals=found,
        reasons={reason: float(count) for reason, count in Counter(reasons).most_common()},
        lengths=quantiles(lengths),
        longest=longest,
        context=context,
        part_rows=plan.part_rows,
        layout=layout,
        advice=advice,
        bill=bill(found, ground, settings.bill),
        gpu_price=settings.bill.gpu_price,
        left_out=plan.left_out,
    )


def planned_identity(manifest: Manifest) -> dict[str, Any]:
    """What of a run's identity decides its tokens and how fast it is, as JSON has it."""
    identity: dict[str, Any] = json.loads(json.dumps(manifest.identity))
    return {name: value for name, value in identity.items() if name not in _NOT_COMPARED}


def quantiles(lengths: Mapping[int, float]) -> dict[float, int]:
    """Of lengths, each with its weight: the shortest that is at least as long as such a share of them."""
    ordered = sorted(lengths.items())
    sums = list(itertools.accumulate(weight for _, weight in ordered))
    if not sums:
        return {}
    return {
        share: next(
            length for (length, _), below in zip(ordered, sums, strict=True) if below >= share * sums[-1] * (1 - 1e-12)
        )
        for share in QUANTILES
    }


def _ignore_end(file: InputFile, extent: int) -> None:
    """A plan counts rows and keeps nothing of where a file ends."""


def _everything(plan: ResolvedRun, settings: PlanSettings, how_far: HowFar) -> tuple[Tally, dict[str, Any]]:
    """All rows, read and prepared by the run's own steps on all CPUs. Only counters come back."""
    unit_bytes = settings.as_score().work.unit_bytes
    units: list[Unit] = []
    for file in plan.files:
        if file.extent != 0:
            units += cut(file, None if file.extent is None else [Range(0, file.extent)], [], unit_bytes)
    tally, size = Tally(), sum(file.size for file in plan.files)
    if not units:
        return tally, {"rows": 0, "blocks": 0}
    with ray_session():
        context = DataContext.get_current()
        context.target_max_block_size = plan.block_bytes
        context.enable_progress_bars = False
        source = CorpusSource(units, _ignore_end, settings.corpus.max_record_bytes)
        counted = ray.data.read_datasource(source, override_num_blocks=len(units)).map_batches(
            functools.partial(_pickled, preparation=plan.preparation), batch_size=None, batch_format="pyarrow"
        )
        for row in counted.iter_rows():
            check_stopped()
            tally.join(pickle.loads(row["tally"]))
            how_far(tally.rows, 0)
    return tally, {"rows": tally.rows, "blocks": len(units), "bytes": size}


def tally_table(table: pa.Table, preparation: Preparation) -> Tally:
    """What raw rows come to, prepared as a run does."""
    return Tally().add(prepared_rows(prepare(table, preparation)), preparation.model)


def _pickled(table: pa.Table, preparation: Preparation) -> pa.Table:
    return pa.table({"tally": pa.array([pickle.dumps(tally_table(table, preparation))], pa.binary())})


def _size(model: str) -> Size | None:
    try:
        return size_of_model(model)
    except SettingsError:  # weights that aren't here yet, of a model that nobody has measured
        return None


def _layout(settings: PlanSettings, size: Size | None, context: int, longest: int) -> tuple[Need | None, str | None]:
    """The layout, if the model's size is known; and what a shorter context would do, if that takes fewer GPUs."""
    if size is None:
        return None, f"the size of {settings.model.model} isn't known before its weights are here, nor is its layout"
    found = layout_for(size, settings.card, context)
    if settings.card.tensor_parallel is not None or not longest or longest >= context:
        return found, None
    shorter = layout_for(size, settings.card, longest)
    if shorter.layout.gpus == found.layout.gpus:
        return found, None
    seen = "is" if settings.look.full else "that was seen is"
    return found, f"the longest prompt {seen} {longest:,} tokens with its answer: for these {shorter.layout} would do"
