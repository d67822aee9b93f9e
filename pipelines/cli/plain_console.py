"""The console of every report. Reports hold what others wrote: file names, conditions, answers of an endpoint."""

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from actors.text.visible import line


class _PlainConsole(Console):
    """Every text, cell and title passes here; what is of several lines is given as `Text`."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(line(text), **how)


def say(text: str, *, err: bool = False) -> None:
    """Print a line, in which nothing steers a terminal."""
    click.echo(line(text), err=err)


def plain_console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A console that prints texts, tables and titles as they are: `[b]` is no style, `:ok:` no emoji, a number no colour.

    Each text is one line, and shows characters that would steer a terminal.
    """
    return _PlainConsole(stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)
