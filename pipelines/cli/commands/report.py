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
    from pipelines.results.html_report.build import build

    written = build(build_from(ReportSettings, options))
    warnings = [f"Warning: {warning}" for warning in written.warnings]
    tell(as_json, written, [*warnings, f"Written to {written.path} ({written.size / 1e6:.1f} MB)"])
    if is_opened and not webbrowser.open(Path(written.path).resolve().as_uri()):
        say("There is no browser here that --open could start; open the file elsewhere", err=True)
