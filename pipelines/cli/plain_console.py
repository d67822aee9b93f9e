"""The console of every report. Reports hold what others wrote: file names, conditions, answers of an endpoint."""

from rich.console import Console


def plain_console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A console that prints texts, tables and titles as they are: `[b]` is no style, `:ok:` no emoji, a number no colour."""
    return Console(stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)
