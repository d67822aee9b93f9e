"""The commands `verify` and `retry`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from actors.errors import AuditError, GateFailed
from actors.text.counted import counts_text, first_of, shown_lines
from pipelines.cli.flags import argument, build_from, command, json_option, settings_options, silence_ray
from pipelines.cli.plain_console import tell
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings

if TYPE_CHECKING:
    from pipelines.workflows.rescoring.retry_rows import RetrySummary
    from pipelines.workflows.rescoring.verify_folder import SampleComparison, VerifySummary

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
    from pipelines.run.runtime.progress import TerminalProgress
    from pipelines.workflows.rescoring.verify_folder import verify as check

    settings = build_from(VerifySettings, options)
    with silence_ray():
        summary = check(settings, TerminalProgress())
    tell(as_json, summary, _verify_report(summary))
    # With --repair the bad parts are gone, and the next run is the cure: exit code 0.
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


def _verify_report(summary: "VerifySummary") -> Iterator[str]:
    bad = [f"{name} {problem}" for name, problem in summary.bad.items()]
    yield f"{summary.parts:,} parts, {summary.bytes:,} bytes: {summary.parts - len(bad):,} good, {len(bad):,} bad"
    yield from shown_lines(bad, _SHOWN)
    if summary.strays:
        yield f"Not of this run: {first_of(summary.strays, _SHOWN)}"
    if summary.dropped:
        yield from (f"Deleted: {name}" for name in summary.dropped)
        yield "Run the same command that scored the corpus again: it scores what is missing"
    if summary.sample is not None:
        yield from _sample_report(summary.sample)


def _sample_report(sample: "SampleComparison") -> Iterator[str]:
    from pipelines.cli.report import MADE_UP

    yield f"{sample.rows:,} rows scored again"
    yield f"{sample.compared:,} of {sample.responses:,} responses have a reward both times"
    if sample.at is not None:
        largest, mean = f"{sample.difference:.3g} ({sample.at})", f"{sample.mean_difference:.3g}"
        yield f"Largest difference of a number: {largest}; mean of the rewards' {mean}"
    yield f"{len(sample.flips):,} responses have another status"
    yield from shown_lines([_flip_text(flip) for flip in sample.flips], _SHOWN)
    if sample.is_made_up:
        yield MADE_UP


def _flip_text(flip: Mapping[str, Any]) -> str:
    # A scored response has no reason beside its status.
    before, now = (" ".join(filter(None, (flip[moment], flip[f"{moment}_reason"]))) for moment in ("before", "now"))
    return f"{flip['row']} ({flip['response']}): {before} to {now}"


@command()
@argument("scored", RetrySettings)
@settings_options(RetrySettings, "scored")
@json_option
def retry(as_json: bool, **options: Any) -> None:
    """Score again, in place, the responses of the scored corpus SCORED that have failed.

    The model and its settings must be those of the run. All other rows keep their numbers. If it is interrupted, run the
    same command again.
    """
    from pipelines.run.runtime.progress import TerminalProgress
    from pipelines.workflows.rescoring import retry_rows

    with silence_ray():
        summary = retry_rows.retry(build_from(RetrySettings, options), TerminalProgress())
    tell(as_json, summary.as_json(), _retry_report(summary))


def _retry_report(summary: "RetrySummary") -> Iterator[str]:
    if not summary.retried:
        yield "Nothing is to be scored again: no response has failed for these reasons"
        return
    yield f"Scored again: {sum(summary.retried.values()):,} responses ({counts_text(summary.retried)})"
    before, after = summary.before, summary.after
    yield f"Failed: {before.failed:,} before, {after.failed:,} now"
    yield f"Scored: {before.scored:,} before, {after.scored:,} now"
