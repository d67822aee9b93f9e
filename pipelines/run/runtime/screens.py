"""Where lines of progress are shown: a terminal, a notebook's cell, or a stream of whole lines such as a log."""

import importlib
import sys
import uuid
from typing import Any, TextIO

from rich.console import Console


class Log:
    """A stream of whole lines.

    `show` gives the progress line's next state, `keep` a line that stays, in its place; `end` leaves the progress line as it
    is, so that the next one begins below it. `every_s` is the least time between two states of the progress line.
    """

    every_s = 10.0  # a log is kept: a line for each part would be thousands

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        self._write(f"{text}\n")

    keep = show

    def end(self) -> None: ...

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Terminal(Log):
    """A terminal, on which the progress line is written over. One write a line: notes come from several threads."""

    every_s = 0.0

    def show(self, text: str) -> None:
        self._write(f"\r\x1b[2K{text}")  # to the line's begin, and clear it: the state before may be longer

    def keep(self, text: str) -> None:
        self._write(f"\r\x1b[2K{text}\n")

    def end(self) -> None:
        self._write("\n")


class Notebook:
    """The output of a notebook's cell: an output for each line, the last of which is replaced. Saved with the notebook."""

    every_s = 0.5  # each state is a message to the browser

    def __init__(self) -> None:
        self._shown: str | None = None  # the id of the output that the next line replaces

    def show(self, text: str) -> None:
        update, self._shown = self._shown is not None, self._shown or uuid.uuid4().hex
        # Imported here: every notebook has it and workers, to which this object may be pickled, need not.
        display: Any = importlib.import_module("IPython.display").display
        display({"text/plain": text}, raw=True, display_id=self._shown, update=update)

    def keep(self, text: str) -> None:
        self.show(text)
        self.end()

    def end(self) -> None:
        self._shown = None


Screen = Log | Terminal | Notebook


def screen(stream: TextIO) -> Screen:
    """The screen for a stream: a notebook's output, a terminal, or else a log."""
    if stream is sys.stderr and Console(stderr=True).is_jupyter:
        return Notebook()
    return Terminal(stream) if stream.isatty() else Log(stream)
