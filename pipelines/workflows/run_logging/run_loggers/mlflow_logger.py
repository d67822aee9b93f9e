"""MLflow: a run in the experiment of MLFLOW_EXPERIMENT_NAME, or `assay`, of the server in MLFLOW_TRACKING_URI."""

import os
import time
from collections.abc import Mapping
from typing import Any

from pipelines.workflows.run_logging.run_logger import LoggerKind, RunToLog

_EXPERIMENT, _TAG = "assay", "assay.run"
_MOST_PARAMS = 100  # that MLflow takes in one request; of metrics it takes a thousand
_MOST_TEXT = 500  # characters of a parameter, which servers of all versions take


class _MlflowLogger:
    def __init__(self, run: RunToLog) -> None:
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT))
        self._id = self._resumed(experiment, run) or self._started(experiment, run)
        self.place = f"{self._client.tracking_uri}, run {self._id}"

    def log(self, figures: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in figures.items()])

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        self.log(summary, step)
        self._client.set_terminated(self._id, "FINISHED" if is_complete else "FAILED")

    def _experiment(self, name: str) -> str:
        there = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if there is None else there.experiment_id)

    def _resumed(self, experiment: str, run: RunToLog) -> str | None:
        # By a tag: a run's identifier is the server's to choose, and none of ours.
        earlier = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{run.run}'", max_results=1)
        if not earlier:
            return None
        self._client.update_run(earlier[0].info.run_id, status="RUNNING")
        return str(earlier[0].info.run_id)

    def _started(self, experiment: str, run: RunToLog) -> str:
        from mlflow.entities import Param

        started = self._client.create_run(experiment, tags={_TAG: run.run}, run_name=run.name)
        params = [Param(name, text[:_MOST_TEXT]) for name, text in run.flat_config().items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(started.info.run_id, params=params[start : start + _MOST_PARAMS])
        return str(started.info.run_id)


LOGGER = LoggerKind("mlflow", "mlflow", _MlflowLogger)
