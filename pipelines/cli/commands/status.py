"""The command `status`: what a folder is and how far, once, or again and again until its run ends."""

import sys

import click

from pipelines.cli.flags import argument, command, json_option
from pipelines.cli.plain_console import tell

_LEAST_INTERVAL_S = 0.2  # a look lists the folder, in a store by a request for each thousand of its parts


@command()
@argument("folder", "the output folder of any command, which may be under way")
@click.option("--watch", is_flag=True, help="look again and again until the run ends: exit code 0 if it is complete, else 3")
@click.option(
    "--interval",
    type=click.FloatRange(min=_LEAST_INTERVAL_S),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="--watch: time between two looks",
)
@json_option
def status(folder: str, watch: bool, interval: float, as_json: bool) -> None:
    """Show what is in FOLDER: how far its run is, whether it works, stopped or died, and how to resume it.

    Reads the folder alone, on any machine, of every command that writes one. --watch prints a line per look.
    """
    from pipelines.cli import status_report

    if watch:
        sys.exit(status_report.watch(folder, interval, as_json))
    state = status_report.read_status(folder)
    tell(as_json, state, status_report.status_report(state))
