"""The command `convert`."""

import click

from pipelines.cli.flags import argument, command, option


@command()
@argument("model", "a local folder, a hub id, or one of the built-in tiny-* models")
@argument("folder", "folder for the converted checkpoint")
@option("--revision", help="branch, tag or commit of a hub model")
@option("--family", help="family of the model, as for `score`")
def convert(model: str, folder: str, revision: str | None, family: str | None) -> None:
    """Convert MODEL, whose reward is read from a language model's logits, to a checkpoint with a reward head in FOLDER.

    Needed for tensor parallelism if the first GPU doesn't hold these logits; `score` says so then. Weight files are hard
    links to those of MODEL where the file system allows it, and copies otherwise.
    """
    from actors.launch.convert_checkpoint import convert as write

    write(model, folder, revision, family, click.echo)
