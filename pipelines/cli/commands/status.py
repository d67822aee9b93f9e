"""The command `status`: what a folder is and how far, once, or again and again until its run ends."""

import sys

import click

from actors.errors import SettingsError
from pipelines.cli.flags import argument, command, json_option
from pipelines.cli.plain_console import tell

_INTERVAL_S = 5.0
_LEAST_INTERVAL_S = 0.2


@command()
@argument("folder", "the output folder of any command, which may be under way")
@click.option("--watch", is_flag=True, help="look again and again until the run ends: exit code 0 if it is complete, else 3")
@click.option(
    "--interval", type=float, metavar="SECONDS", help=f"--watch: time between two looks  [default: {_INTERVAL_S:g}]"
)
@json_option
def status(folder: str, watch: bool, interval: float | None, as_json: bool) -> None:
    """Show what is in FOLDER: how far its run is, whether it works, stopped or died, and how to resume it.

    Reads the folder alone, on any machine, of every command that writes one. --watch redraws one screen on a terminal, and
    appends a line per look elsewhere.
    """
    from pipelines.cli import status_report

    if interval is not None and not watch:
        raise SettingsError("--interval is the time between two looks of --watch, which isn't given")
    if interval is not None and not interval >= _LEAST_INTERVAL_S:
        raise SettingsError(f"--interval {interval:g}: must be at least {_LEAST_INTERVAL_S:g} seconds")
    if watch:
        sys.exit(status_report.watch(folder, _INTERVAL_S if interval is None else interval, as_json))
    state = status_report.read_status(folder)
    tell(as_json, state, status_report.status_report(state))
