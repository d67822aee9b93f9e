"""The printed plan of a run, and after the run its comparison with the facts."""

import math
import time
from collections.abc import Iterator
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.table import Table

from actors.settings.replica import Pairs
from actors.text.counted import counts_text, number_of
from pipelines.cli.plain_console import Report
from pipelines.data.corpus.find_corpus import left_out_message
from pipelines.run.runtime.progress import duration
from pipelines.run.runtime.screens import screen
from pipelines.workflows.estimate.forecast import CorpusPlan
from pipelines.workflows.estimate.intervals import Estimate
from pipelines.workflows.estimate.layouts import engine_options

_NOISE = 1e-6  # of sums of floats
_NAMES = {
    "tokens": "prompt tokens",
    "rows": "input rows",
    "written_tokens": "written tokens",
    "wall_s": "time",
    "work_s": "time",
    "gpu_hours": "GPU-hours",
}


class TokenisingProgress:
    """A line with the number of rows tokenised, which is shown as often as the stream's screen shows progress."""

    def __init__(self, stream: TextIO) -> None:
        self._screen = screen(stream)
        self._shown_at = time.monotonic()
        self._is_shown = False

    def update(self, done: int, of: int) -> None:
        """Show that `done` rows are tokenised; `of` is their total, or 0 if it is unknown."""
        now = time.monotonic()
        # A terminal is drawn over, and a log gets a line each time, so the stream says how often.
        if now - self._shown_at >= self._screen.every_s:
            self._screen.show(f"tokenised {done:,} of {of:,}" if of else f"tokenised {done:,} rows")
            self._shown_at, self._is_shown = now, True

    def done(self) -> None:
        if self._is_shown:
            self._screen.end()


def plan_report(plan: CorpusPlan) -> Report:
    """A plan, as lines of text and a table.

    Of each amount it shows the estimate and the bounds of its 95 % interval, which are equal where all rows were read.
    """
    rows = plan.looked["rows"]
    tokenised = f"all {rows:,} rows" if plan.looked["exact"] else f"{rows:,} rows drawn at random"
    size = sum(file.size for file in plan.files)
    yield plan.shape_found
    yield f"{number_of(len(plan.files), 'file')}, {size:,} bytes; tokenised {tokenised}"
    if plan.left_out:
        yield left_out_message(plan.left_out)
    yield _amounts(plan)
    yield from _about_prompts(plan)
    yield from _about_engines(plan)


def _amounts(plan: CorpusPlan) -> Table:
    totals, bill = plan.totals, plan.bill
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for name in ("planned", "95 % low", "high"):
        table.add_column(name, justify="right")
    for name in ("rows", "responses", "rejected", "truncated", "tokens"):
        table.add_row(_NAMES.get(name, name), *_whole(totals[name]))
    if bill.written is not None:
        table.add_row("questions", *_whole(totals["prompts"]))
        table.add_row("written tokens", *_whole(bill.written))
    if bill.work_s is not None:
        table.add_row("time", *_durations(bill.work_s))
    for name, hours in (("GPU-hours", bill.gpu_hours), ("cost", bill.cost)):
        if hours is not None:
            table.add_row(name, *_decimals(hours))
    return table


def _whole(estimate: Estimate) -> list[str]:
    # Whole numbers; bounds are rounded outward, so that they are the same only where the estimate is exact.
    # An exact sum of floats may be a hair off the whole number: that must not look like an interval.
    low, high = math.floor(estimate.low + _NOISE), math.ceil(estimate.high - _NOISE)
    return [f"{number:,.0f}" for number in (estimate.value, low, high)]


def _decimals(estimate: Estimate) -> list[str]:
    # Two decimals, or more where the bounds would look the same and aren't, or a number would look like 0.
    for decimals in range(2, 7):
        shown = [f"{number:,.{decimals}f}" for number in estimate]
        if (shown[1] != shown[2] or estimate.is_exact) and (float(estimate.value) == 0 or shown[0].strip("0.,")):
            break
    return shown


def _durations(estimate: Estimate) -> list[str]:
    shown = [duration(seconds) for seconds in estimate]
    is_plain = estimate.value >= 1 and (shown[1] != shown[2] or estimate.is_exact)
    return shown if is_plain else [f"{text} s" for text in _decimals(estimate)]


def _about_prompts(plan: CorpusPlan) -> Iterator[str]:
    if (plan.identity.get("judge") or {}).get("pairs") == Pairs.ALL:
        yield "All responses of a row are compared (judge.pairs=all): n(n - 1)/2 comparisons of n responses"
    if plan.reasons:
        yield f"Rejected: {counts_text(plan.reasons)}"
    limit = plan.identity["max_model_len"]
    if plan.longest:
        yield "Prompt tokens of a response: " + ", ".join(
            f"{share:.0%} {tokens:,}" for share, tokens in plan.lengths.items()
        )
        yield f"Longest prompt seen: {plan.longest:,}" + ("" if limit is None else f" of the {limit:,} that are taken")


def _about_engines(plan: CorpusPlan) -> Iterator[str]:
    bill = plan.bill
    if plan.layout is not None:
        yield str(plan.layout)
        size, gpu = plan.basis.size, plan.basis.card
        if size and (options := engine_options(size, gpu, plan.layout.layout, plan.basis.model.dtype)):
            yield f"Options of `assay score`: {options}"
    elif plan.basis.size is None and plan.basis.gpu and not plan.basis.verifies and plan.basis.model.remote is None:
        yield f"the size of {plan.model} isn't known before its weights are here, nor is its layout"
    parts = f"parts of {plan.part_rows:,} rows, about {plan.parts.value:,.0f} of them"
    if plan.basis.verifies:
        yield f"No GPU: code compares texts on CPUs; {parts}"
        return
    if (remote := plan.basis.model.remote) is not None:
        yield f"No GPU: {remote.url} is asked; {parts}"
        if bill.cost is None:
            yield "No price: --set endpoint.input_price and endpoint.output_price are those of a million tokens"
        yield from (f"Assumed: {assumption}" for assumption in bill.assumptions)
        return
    where = "CPUs" if plan.basis.gpu is None else number_of(bill.gpus, "GPU")
    yield f"{number_of(bill.engines, 'engine')} on {where}; {parts}"
    if bill.speed is None:
        card = "CPUs" if plan.basis.gpu is None else f"a GPU {plan.basis.gpu.name}"
        yield (
            f"No speed is expected of {card} for this model in {plan.basis.precision}, so no time: --like FOLDER takes that "
            "of an earlier run, --tokens-per-s is what you know of an engine"
        )
    else:
        writes = f" and writes {bill.speed.written:,.0f}" if bill.speed.written else ""
        low, high = (f"{bill.speed.read * factor:,.0f}" for factor in (bill.speed.low, bill.speed.high))
        reads = f"{bill.speed.read:,.0f} tokens/s" + (f" ({low} to {high})" if low != high else "")
        yield f"An engine reads {reads}{writes}: {bill.speed.source}"
        start = bill.speed.start_s
        yield f"Its start comes on top: {'minutes, if the model is large' if start is None else f'{duration(start)} there'}"
    yield from (f"Assumed: {assumption}" for assumption in plan.assumptions)
