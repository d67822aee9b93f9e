"""The command `plan`."""

import json
from typing import Any

import click

from pipelines.flags import given, json_option, settings_options
from pipelines.layouts import LayoutSettings, layout_of, table
from pipelines.options import build


@click.command()
@click.option("--table", "as_table", is_flag=True, help="the layouts of all published models, in Markdown")
@settings_options(LayoutSettings)
@json_option
def plan(as_table: bool, as_json: bool, **options: Any) -> None:
    """Tell how many GPUs an engine of a model takes and how they share it, with the arithmetic. Needs no GPU.

    With --tensor-parallel a layout of your own is checked.
    """
    if as_table:
        for line in table():
            click.echo(line)
        return
    found = layout_of(build(LayoutSettings, given(options)))
    if as_json:
        click.echo(json.dumps({**found.layout._asdict(), "gpus": found.layout.gpus, "arithmetic": str(found)}))
        return
    click.echo(f"{found.layout}: {found.layout.gpus} GPU{'s' * (found.layout.gpus > 1)} for an engine")
    click.echo(str(found))
