"""Prints what commands come to. Reports hold what others wrote: file names, conditions, answers of an endpoint."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from actors.text.visible import line

if TYPE_CHECKING:
    from pipelines.results.hub.upload import Upload

# The version of what `--json` prints: it rises when a key goes, or gets another name, type or meaning.
JSON_VERSION_KEY, JSON_VERSION = "assay_json", 1

Report = Iterator[str | Table]  # what a command says at its end


class _PlainConsole(Console):
    # Every text, cell and title passes here; what is of several lines is given as `Text`.
    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(line(text), **how)


def say(text: str, *, err: bool = False) -> None:
    """Print a line, in which nothing steers a terminal."""
    click.echo(line(text), err=err)


def print_json(document: Any) -> None:
    """Print a dataclass or a mapping as a line of JSON, which begins with the version of its form."""
    content = document if isinstance(document, Mapping) else asdict(document)
    # On one line: `run` and `status --watch` print several objects, and a reader takes line by line.
    click.echo(json.dumps({JSON_VERSION_KEY: JSON_VERSION, **content}, default=asdict))


def tell(as_json: bool, document: Any, report: Iterable[str | Table]) -> None:
    """Print what a command came to: for a program as a line of JSON, and for people as its report."""
    if as_json:
        print_json(document)
    else:
        show(report)


def upload_text(upload: "Upload") -> str:
    """Where a result was uploaded to, for people."""
    return f"Uploaded to {upload.url} ({'anybody may read it' if upload.public else 'private'}), commit {upload.commit}"


def show(report: Iterable[str | Table]) -> None:
    """Print a report: a line for each of its texts, and its tables, of which a narrow terminal cuts no number off."""
    console = plain_console()
    for fact in report:
        # Texts wrap as the terminal does it, so that paths and commands can be copied; a table isn't cut.
        console.print(fact, soft_wrap=isinstance(fact, str), crop=False)


def plain_console() -> Console:
    """A console that prints texts, tables and titles as they are: `[b]` is no style, `:ok:` no emoji, a number no colour.

    Each text is one line, and shows characters that would steer a terminal.
    """
    return _PlainConsole(markup=False, emoji=False, highlight=False)
