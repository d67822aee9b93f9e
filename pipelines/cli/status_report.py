"""What a folder is and how far, as `status` shows it: once, or again and again until its run ends."""

import math
import shlex
import time
from collections.abc import Iterator
from datetime import datetime

from actors.text.counted import counts_text, first_of, number_of
from actors.text.model_names import short_name
from pipelines.cli.plain_console import tell
from pipelines.cli.report import MADE_UP
from pipelines.cli.result_status import ROWS_OF, ResultStatus, SourceState, result_status
from pipelines.cli.status import RunState, RunStatus
from pipelines.cli.status import status as run_status
from pipelines.folders.scored_corpus.unscored import unscored_lines
from pipelines.run.runtime.progress import duration

_STOPPED, _INTERRUPTED = 3, 130  # exit codes of a watch: the run ended early, as of the run itself; Ctrl-C
_SOURCES = {
    SourceState.UNCHANGED: "",
    SourceState.CHANGED: ", which has changed since: the same command with --overwrite makes it anew",
    SourceState.GONE: ", which isn't there any more",
}

Status = RunStatus | ResultStatus


def read_status(folder: str) -> Status:
    """The state of a run, or of a command's result. Raises `SourceError` if the folder holds neither."""
    return result_status(folder) or run_status(folder)


def watch(folder: str, interval: float, as_json: bool) -> int:
    """Show a line every `interval` seconds while a run works, and all that is known at its end; returns the exit code."""
    try:
        # Read anew each time, whatever the folder is by then: a run that ends leaves a summary.
        while (state := read_status(folder)).state is RunState.RUNNING:
            now = datetime.now().astimezone().isoformat(" ", "seconds")
            tell(as_json, state, [f"{now}  {_short(state)}"])
            time.sleep(interval)
    except KeyboardInterrupt:
        return _INTERRUPTED
    tell(as_json, state, status_report(state))
    return 0 if state.state is RunState.COMPLETE else _STOPPED


def _short(state: Status) -> str:
    if isinstance(state, ResultStatus):
        if state.runs:
            under_way = [run.line() for run in state.runs if run.state not in (None, RunState.COMPLETE)]
            complete = sum(run.state is RunState.COMPLETE for run in state.runs)
            return "; ".join([f"{state.state}: {complete:,} of {len(state.runs):,} runs complete", *under_way])
        return f"{state.state}: {_rows_text(state)}"
    return ", ".join([f"{state.state}{_done_text(state)}: {state.responses:,} responses", *_time_facts(state)])


def status_report(state: Status) -> Iterator[str]:
    """All that is known of a folder's state, as lines of text."""
    return _result_lines(state) if isinstance(state, ResultStatus) else _run_lines(state)


def _run_lines(run: RunStatus) -> Iterator[str]:
    files = number_of(run.files, "file")
    yield f"{run.state}{_done_text(run)}: {files} by {short_name(run.model)}, {number_of(run.parts, 'part')}"
    yield from _holder_lines(run)
    yield (
        f"{run.rows:,} rows, {run.responses:,} responses: "
        f"{run.scored:,} scored, {run.rejected:,} rejected, {run.failed:,} failed"
    )
    if run.reasons:
        read, there = run.reasons_of_parts
        of_parts = f" (in the newest {read:,} of {there:,} parts that have any)" if read < there else ""
        yield f"Without a reward: {counts_text(run.reasons)}{of_parts}"
        yield from unscored_lines(run.reasons, run.examples)
    if facts := _time_facts(run):
        yield ", ".join(facts)
    if run.empty:
        yield f"Parts that are empty: {first_of(run.empty, 3)}; the same command scores them again"
    yield from _end_lines(run)


def _result_lines(result: ResultStatus) -> Iterator[str]:
    yield f"{result.state}: result of `{result.command}`, {_rows_text(result)}"
    yield from _holder_lines(result)
    yield from (f"  {run.line()}" for run in result.runs)
    by = f", scored by {short_name(result.model)}" if result.model else ""
    yield f"Made of {result.source}{by}{'' if result.source_state is None else _SOURCES[result.source_state]}"
    if result.description:
        yield f"Settings: {result.description}"
    yield from _end_lines(result)


def _rows_text(result: ResultStatus) -> str:
    rows = "" if result.rows is None else f"{result.rows:,} {ROWS_OF[result.command]} in "
    return f"{rows}{number_of(result.files, 'file')} of {result.bytes:,} bytes"


def _done_text(run: RunStatus) -> str:
    # Rounded down: 100 % means that nothing is missing.
    return "" if run.complete else f", {math.floor(run.share * 1000) / 10:.1f}% done"


def _time_facts(run: RunStatus) -> list[str]:
    facts = [f"last part {duration(run.last_part_ago)} ago"] if run.last_part_ago is not None else []
    if run.responses_per_s is not None:
        facts.append(f"{run.responses_per_s:,.1f} responses/s over the last parts")
    if run.eta is not None:
        facts.append(f"{duration(run.eta)} to go at that rate")
    return facts


def _holder_lines(state: Status) -> Iterator[str]:
    if (holder := state.holder) is not None:
        since = datetime.fromtimestamp(holder.since).astimezone().isoformat(" ", "seconds")
        last_sign = f"last sign of life {duration(holder.last_sign_ago)} ago"
        end = "; that process is gone" if holder.is_gone else ""
        yield f"Held by process {holder.pid} on {holder.host} since {since}, {last_sign}{end}"


def _end_lines(state: Status) -> Iterator[str]:
    """Whether the numbers are made up, and how to resume what isn't complete."""
    if state.made_up:
        yield MADE_UP
    if state.state not in (RunState.STOPPED, RunState.DEAD):
        return
    # The command that scored the corpus would take failed rows as done.
    if isinstance(state, RunStatus) and state.retry is not None:
        yield f"To resume: {state.retry}"
        return
    # An evaluation has no recipe of its own, and takes seconds. Paths in a recipe are relative to the folder in which its
    # command ran.
    with_recipe = state.recipe and f", or, from the same working folder: assay run {shlex.quote(state.recipe)}"
    yield f"To resume, run the same command again without `overwrite`{with_recipe or ''}"
