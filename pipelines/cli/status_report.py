"""What a folder is and how far, as `status` shows it: once, or again and again until its run ends."""

import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime

import click
from rich.live import Live
from rich.text import Text

from actors.text.visible import line
from pipelines.cli.plain_console import plain_console, say
from pipelines.cli.report import MADE_UP
from pipelines.cli.result_status import ROWS_OF, ResultStatus, SourceState, result_status
from pipelines.cli.status import RunHolder, RunState, RunStatus
from pipelines.cli.status import status as run_status
from pipelines.runtime.progress import duration

_STOPPED, _INTERRUPTED = 3, 130
"""Exit codes of a watch: the run ended early, as of the run itself; Ctrl-C."""
_SOURCES = {
    SourceState.UNCHANGED: "",
    SourceState.CHANGED: ", which has changed since: the same command with --overwrite makes it anew",
    SourceState.GONE: ", which isn't there any more",
}

Status = RunStatus | ResultStatus
Show = Callable[[Status], None]


def read_status(folder: str) -> Status:
    """The state of a run, or of a command's result. Raises `SourceError` if the folder holds neither."""
    return result_status(folder) or run_status(folder)


def show_status(state: Status) -> None:
    """Print the state of a folder."""
    console = plain_console()
    for fact in status_lines(state):
        console.print(fact, soft_wrap=True)


def watch(folder: str, interval: float, as_json: bool) -> int:
    """Show the state every `interval` seconds until it isn't `running`; returns the exit code."""
    try:
        with _display(as_json) as show:
            while True:
                state = read_status(folder)
                show(state)
                if state.state is not RunState.RUNNING:
                    return 0 if state.state is RunState.COMPLETE else _STOPPED
                time.sleep(interval)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _display(as_json: bool) -> AbstractContextManager[Show]:
    if as_json:
        return _append_lines(show_json)
    return _redraw_screen() if sys.stdout.isatty() else _append_lines(_show_line)


@contextmanager
def _redraw_screen() -> Iterator[Show]:
    """One screen, which is drawn over; the last state stays."""
    with Live(console=plain_console(), auto_refresh=False) as live:
        yield lambda state: live.update(Text("\n".join(map(line, [*status_lines(state), _time_text()]))), refresh=True)


@contextmanager
def _append_lines(show: Show) -> Iterator[Show]:
    yield show


def show_json(state: Status) -> None:
    """Print the state of a folder as a line of JSON."""
    click.echo(json.dumps(asdict(state)))


def _show_line(state: Status) -> None:
    """A line while the run works, and all that is known at its end."""
    if state.state is RunState.RUNNING:
        say(f"{_time_text()}  {_short(state)}")
    else:
        show_status(state)


def _time_text() -> str:
    return datetime.now().astimezone().isoformat(" ", "seconds")


def _short(state: Status) -> str:
    if isinstance(state, ResultStatus):
        if state.runs:
            under_way = [run.line() for run in state.runs if run.state not in (None, RunState.COMPLETE)]
            complete = sum(run.state is RunState.COMPLETE for run in state.runs)
            return "; ".join([f"{state.state}: {complete:,} of {len(state.runs):,} runs complete", *under_way])
        return f"{state.state}: {_rows_text(state)}"
    return ", ".join([f"{state.state}{_done_text(state)}: {state.responses:,} responses", *_time_facts(state)])


def status_lines(state: Status) -> list[str]:
    """All that is known of a folder's state, as lines of text."""
    return list(_result_lines(state) if isinstance(state, ResultStatus) else _run_lines(state))


def _run_lines(run: RunStatus) -> Iterator[str]:
    files, parts = (f"{count:,} {noun}{'s' * (count != 1)}" for count, noun in ((run.files, "file"), (run.parts, "part")))
    yield f"{run.state}{_done_text(run)}: {files} by {run.model}, {parts}"
    if run.holder is not None:
        yield _holder_text(run.holder)
    yield (
        f"{run.rows:,} rows, {run.responses:,} responses: "
        f"{run.scored:,} scored, {run.rejected:,} rejected, {run.failed:,} failed"
    )
    if run.reasons:
        yield _reasons_text(run)
    if run.made_up:
        yield MADE_UP
    if facts := _time_facts(run):
        yield ", ".join(facts)
    if run.empty:
        yield f"Parts that are empty: {', '.join(run.empty[:3])}; the same command scores them again"
    if run.state in (RunState.STOPPED, RunState.DEAD):
        yield _resume_text(run)


def _result_lines(result: ResultStatus) -> Iterator[str]:
    yield f"{result.state}: result of `{result.command}`, {_rows_text(result)}"
    if result.holder is not None:
        yield _holder_text(result.holder)
    for run in result.runs:
        yield f"  {run.line()}"
    by = f", scored by {result.model}" if result.model else ""
    yield f"Made of {result.source}{by}{'' if result.source_state is None else _SOURCES[result.source_state]}"
    if result.asked:
        yield f"As asked: {result.asked}"
    if result.made_up:
        yield MADE_UP
    if result.state in (RunState.STOPPED, RunState.DEAD):
        yield _resume_text(result)


def _rows_text(result: ResultStatus) -> str:
    rows = "" if result.rows is None else f"{result.rows:,} {ROWS_OF[result.command]} in "
    return f"{rows}{result.files:,} file{'s' * (result.files != 1)} of {result.bytes:,} bytes"


def _done_text(run: RunStatus) -> str:
    return "" if run.complete else f", {math.floor(run.share * 1000) / 10:.1f}% done"


def _time_facts(run: RunStatus) -> list[str]:
    facts = [f"last part {duration(run.last_part_ago)} ago"] if run.last_part_ago is not None else []
    if run.responses_per_s is not None:
        facts.append(f"{run.responses_per_s:,.1f} responses/s over the last parts")
    if run.eta is not None:
        facts.append(f"{duration(run.eta)} to go at that rate")
    return facts


def _holder_text(holder: RunHolder) -> str:
    since = datetime.fromtimestamp(holder.since).astimezone().isoformat(" ", "seconds")
    end = "; that process is gone" if holder.is_gone else ""
    return (
        f"Held by process {holder.pid} on {holder.host} since {since}, last sign of life "
        f"{duration(holder.last_sign_ago)} ago{end}"
    )


def _reasons_text(run: RunStatus) -> str:
    read, there = run.reasons_of_parts
    of_parts = f" (in the newest {read:,} of {there:,} parts that have any)" if read < there else ""
    return "Without a reward: " + ", ".join(f"{count:,} {reason}" for reason, count in run.reasons.items()) + of_parts


def _resume_text(state: Status) -> str:
    if isinstance(state, RunStatus) and state.retry is not None:
        return f"To resume: {state.retry}"
    again = "To resume, run the same command again without `overwrite`"
    # An evaluation has no recipe of its own, and takes seconds.
    return (
        again
        if state.recipe is None
        else f"{again}, or, from the same working folder: assay run {shlex.quote(state.recipe)}"
    )
