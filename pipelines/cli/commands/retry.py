"""The command `retry`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actors.text.counted import counts_text
from pipelines.cli.flags import argument, build_from, command, json_option, settings_options, silence_ray
from pipelines.cli.plain_console import tell
from pipelines.settings.rescore_settings import RetrySettings

if TYPE_CHECKING:
    from pipelines.workflows.rescoring.retry_rows import RetrySummary


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
    tell(as_json, summary.as_json(), _report(summary))


def _report(summary: "RetrySummary") -> Iterator[str]:
    if not summary.retried:
        yield "Nothing is to be scored again: no response has failed for these reasons"
        return
    yield f"Scored again: {sum(summary.retried.values()):,} responses ({counts_text(summary.retried)})"
    before, after = summary.before, summary.after
    yield f"Failed: {before.failed:,} before, {after.failed:,} now"
    yield f"Scored: {before.scored:,} before, {after.scored:,} now"
