"""The command `verify`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from actors.errors import AuditError, GateFailed
from pipelines.cli.flags import argument, build_from, command, json_option, settings_options, silence_ray
from pipelines.cli.plain_console import say
from pipelines.settings.rescore_settings import VerifySettings

if TYPE_CHECKING:
    from pipelines.rescoring.verify_folder import SampleComparison, VerifySummary

_SHOWN = 20


@command()
@argument("scored", VerifySettings)
@settings_options(VerifySettings, "scored")
@json_option
def verify(as_json: bool, **options: Any) -> None:
    """Check every part of the scored corpus SCORED, and score a sample of its rows again.

    Exit code 4 if a part is damaged, renamed or another run's, if something is missing, or other files lie among the parts;
    with --repair bad parts are deleted, and the next `score` scores their rows again, and other files are moved to
    set-aside/. Exit code 5 if --max-difference is exceeded.
    """
    from pipelines.rescoring.verify_folder import verify as check
    from pipelines.runtime.progress import Lines

    settings = build_from(VerifySettings, options)
    with silence_ray():
        summary = check(settings, Lines())
    if as_json:
        click.echo(json.dumps(asdict(summary)))
    else:
        _show(summary)
    if not summary.is_sound and not summary.dropped:
        raise AuditError(_problem(summary))
    if failures := summary.gate_failures(settings.max_difference):
        raise GateFailed("; ".join(failures))


def _problem(summary: "VerifySummary") -> str:
    if summary.bad:
        return f"{len(summary.bad):,} of {summary.parts:,} parts are bad; --repair deletes them, then score the corpus again"
    if summary.gaps:
        return f"{summary.gaps}\nRun the same command that scored the corpus again"
    return f"{len(summary.strays):,} files among the parts aren't of this run, but others read them: --repair moves them"


def _show(summary: "VerifySummary") -> None:
    good, bad = summary.parts - len(summary.bad), len(summary.bad)
    say(f"{summary.parts:,} parts, {summary.bytes:,} bytes: {good:,} good, {bad:,} bad")
    for name, problem in list(summary.bad.items())[:_SHOWN]:
        say(f"  {name} {problem}")
    if (more := len(summary.bad) - _SHOWN) > 0:
        say(f"  and {more:,} more; --json has all of them")
    if summary.strays:
        say(f"Not of this run: {', '.join(summary.strays[:_SHOWN])}")
    for name in summary.dropped:
        say(f"Deleted: {name}")
    if summary.dropped:
        say("Run the same command that scored the corpus again: it scores what is missing")
    if summary.sample is not None:
        _show_sample(summary.sample)


def _show_sample(sample: "SampleComparison") -> None:
    from pipelines.cli.report import MADE_UP

    say(f"{sample.rows:,} rows scored again")
    say(f"{sample.compared:,} of {sample.responses:,} responses have a reward both times")
    if sample.at is not None:
        say(
            f"Largest difference of a number: {sample.difference:.3g} ({sample.at}); mean of the rewards' "
            f"{sample.mean_difference:.3g}"
        )
    say(f"{len(sample.flips):,} responses have another status")
    for flip in sample.flips[:_SHOWN]:
        before, now = (" ".join(filter(None, (flip[at], flip[f"{at}_reason"]))) for at in ("before", "now"))
        say(f"  {flip['row']} ({flip['response']}): {before} to {now}")
    if (more := len(sample.flips) - _SHOWN) > 0:
        say(f"  and {more:,} more; --json has all of them")
    if sample.is_made_up:
        say(MADE_UP)
