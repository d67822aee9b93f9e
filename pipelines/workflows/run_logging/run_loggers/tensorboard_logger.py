"""TensorBoard: event files in `tensorboard/` beside the results, a folder for each run; a session of it adds a file."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines.workflows.run_logging.run_logger import LoggerKind, RunToLog

_FOLDER = "tensorboard"


class _TensorboardLogger:
    def __init__(self, run: RunToLog) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.place = str(Path(run.folder, _FOLDER))
        self._writer: Any = EventFileWriter(str(Path(self.place, run.run)))
        indented = "\n".join(f"    {line}" for line in yaml.safe_dump(dict(run.config), sort_keys=False).splitlines())
        self._add([text_pb("config", indented)], 0)  # indented text is code in Markdown, which TensorBoard shows

    def log(self, figures: Mapping[str, float], step: int) -> None:
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        self._add([scalar_pb(name, value) for name, value in figures.items()], step)

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        self.log(summary, step)
        self._writer.close()

    def _add(self, summaries: list[Any], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        for summary in summaries:
            self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()


LOGGER = LoggerKind("tensorboard", "tensorboard", _TensorboardLogger, in_folder=True)
