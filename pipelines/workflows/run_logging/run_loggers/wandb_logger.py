"""Weights & Biases: a run in the project of WANDB_PROJECT, or `assay`. The client's own variables decide all else."""

import os
from collections.abc import Mapping

from pipelines.workflows.run_logging.run_logger import LoggerKind, RunToLog

_PROJECT = "assay"
_FAILED = 1
_PATIENCE_S = 25.0  # for an answer of the server, at the start and at the end; less than the 30 s that a run waits


class _WandbLogger:
    def __init__(self, run: RunToLog) -> None:
        import wandb

        settings = wandb.Settings(
            # Not what this process prints, its machine or the git folder: the run works elsewhere.
            console="off",
            disable_git=True,
            x_disable_stats=True,
            silent=True,
            # Without them, the client lets a process that exits wait for its network for ever.
            init_timeout=_PATIENCE_S,
            finish_timeout=_PATIENCE_S,
            reinit="create_new",  # else the next run of this process would go on in a log that was left unfinished
        )
        # A terminal is the run's: the client would ask for a key there.
        is_online = wandb.setup(settings).settings.mode in {"online", "shared", "run"}
        if is_online and not wandb.login(prompt=False, verify=False):
            raise RuntimeError("no API key is configured: set WANDB_API_KEY, or use `wandb login`")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.name,
            id=run.run,
            resume="allow",  # a resumed run goes on in the same one
            config=dict(run.config),
            job_type="assay",
            settings=settings,
        )
        self.place = self._run.url or self._run.dir

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=0 if is_complete else _FAILED)


LOGGER = LoggerKind("wandb", "wandb", _WandbLogger)
