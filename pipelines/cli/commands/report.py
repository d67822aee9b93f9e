"""The command `report`."""

import webbrowser
from pathlib import Path
from typing import Any

import click

from pipelines.cli.flags import argument, build_from, command, json_option, settings_options
from pipelines.cli.plain_console import say, tell
from pipelines.settings.report_settings import ReportSettings


@command()
@argument("scored", ReportSettings, nargs=-1, required=True)
@click.option("--open", "is_opened", is_flag=True, help="open the page in the browser when it is written")
@settings_options(ReportSettings, "scored", output=("--out",))
@json_option
def report(is_opened: bool, as_json: bool, **options: Any) -> None:
    """Show the run in the folder SCORED, or an evaluation, as one HTML file; of two scored corpora, how they differ.

    The page has counts and reasons, the distribution of every output, what a cut keeps, what the reward goes along with, and
    examples. It opens from disk and asks no other host. No engine starts.
    """
    path = write_report(build_from(ReportSettings, options), as_json)
    # A server has no browser: said on standard error, with the page written all the same.
    if is_opened and not webbrowser.open(Path(path).resolve().as_uri()):
        say("There is no browser here that --open could start; open the file elsewhere", err=True)


def write_report(settings: ReportSettings, as_json: bool) -> str:
    """Write the page, as the command or a recipe's step, and say where it is; returns its path."""
    from pipelines.results.html_report.build import build

    written = build(settings)
    warnings = [f"Warning: {warning}" for warning in written.warnings]
    place = f"{written.path} ({written.size / 1e6:.1f} MB)"
    tell(as_json, written, [*warnings, f"Written to {place}" if written.is_new else f"Nothing to do: {place} is as it was"])
    return written.path
