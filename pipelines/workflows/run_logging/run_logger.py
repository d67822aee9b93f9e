"""What a logger of runs is: a place outside of Assay that shows how a run goes, such as Weights & Biases."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import metadata
from importlib.util import find_spec
from typing import Any, Protocol

from actors.errors import SettingsError
from pipelines.data import storage


@dataclass(frozen=True)
class RunToLog:
    """A run as its loggers get it. `run` is its identifier, the same when it is resumed."""

    run: str
    folder: str
    config: Mapping[str, Any]  # the settings with all defaults, and what the run resolved of them, as JSON

    @property
    def name(self) -> str:
        """A name for people: the output folder's."""
        return self.folder.rstrip("/").rsplit("/", 1)[-1]

    def flat_config(self) -> dict[str, str]:
        """The config as texts by dotted path, without what isn't set."""
        return dict(_flattened("", self.config))


class RunLogger(Protocol):
    """A started log of one run. May raise anything: it runs in a thread of its own (`log_thread`)."""

    place: str  # where a person looks at it: an address, or a folder

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Show figures of the run so far; `step` is the number of responses that are done, in all sessions."""

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        """Show the summary, empty unless the run `is_complete`, and close the log. All is sent when this returns."""


@dataclass(frozen=True)
class LoggerKind:
    """A logger by its name in `log`, and the `package` that its client is in."""

    name: str
    package: str
    start: Callable[[RunToLog], RunLogger]
    in_folder: bool = False  # whether it writes files beside the results, which must be on this machine then

    def check(self, folder: str) -> None:
        """Raise `SettingsError` if it can't log a run into this folder."""
        if find_spec(self.package) is None:
            extras = metadata("assay").get_all("Provides-Extra") or ()
            install = f'"assay[{self.name}]"' if self.name in extras else self.package  # a plug-in's is none of ours
            raise SettingsError(
                f"--set log={self.name} needs the package {self.package}, which isn't installed: pip install {install}"
            )
        if self.in_folder and storage.is_remote(folder):
            raise SettingsError(
                f"log={self.name} writes files beside the results, on this machine, and {folder} is in a store: leave it "
                "out, or give a folder of this machine"
            )


def _flattened(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flattened(f"{path}.{name}" if path else str(name), inner)
    elif value not in (None, "", [], {}, ()):
        yield path, str(value)
