"""A file beside the results, with one line of figures every ten seconds."""

import json
from collections.abc import Mapping
from pathlib import Path

from assay.plugins import LoggerKind, RunToLog


class _Lines:
    def __init__(self, run: RunToLog) -> None:
        self.place = str(Path(run.folder, "figures.jsonl"))

    def log(self, figures: Mapping[str, float], step: int) -> None:
        with open(self.place, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": step, **figures}) + "\n")

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        self.log(summary, step)


LOGGER = LoggerKind("lines", "json", _Lines, in_folder=True)
