"""The command `schema`."""

import json

import click

from pipelines.cli.flags import command


@command()
def schema() -> None:
    """Print the JSON Schema of recipes, for editors and programs that write them.

    It has every step of `assay run`, and of every setting the type, the default and what it is for. Its names are those of
    `--set section.name=value`, too.
    """
    from pipelines.settings.recipe_schema import recipe_schema

    click.echo(json.dumps(recipe_schema(), indent=2))
