"""Weights & Biases: a run in the project of WANDB_PROJECT, or `assay`. The client's own variables decide all else."""

import os
from collections.abc import Mapping

from pipelines.run_logging.run_logger import LoggerKind, RunLogger, RunToLog

_PROJECT = "assay"
_FAILED = 1


class _WandbLogger:
    def __init__(self, run: RunToLog) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.name,
            id=run.run or None,
            resume="allow" if run.run else None,  # a resumed run goes on in the same one
            config=dict(run.config),
            job_type="assay",
            # Not what this process prints, its machine or the git folder: the run works elsewhere.
            settings=wandb.Settings(console="off", disable_git=True, x_disable_stats=True),
        )
        self.place = self._run.url or self._run.dir

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=0 if is_complete else _FAILED)


def _start(run: RunToLog) -> RunLogger:
    return _WandbLogger(run)


LOGGER = LoggerKind("wandb", "wandb", _start)
