"""Submits a recipe as a job to a cluster, through Ray's own client, and follows it to its end.

The state of a connection says nothing about the job: a connection that breaks or is silent is opened again, and only a final
status from the cluster ends the following.
"""

import asyncio
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import aiohttp
from ray.exceptions import AuthenticationError, RayError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from actors.errors import SettingsError
from pipelines.run.runtime.job_package import JobPackage
from pipelines.settings.recipe import NAME

ENTRYPOINT = f"python -m assay run {NAME}"

# Time for a job to stop by itself, instead of Ray's 3 s: it must end its engines and remove its placement groups.
_STOP_WAIT_S = 30
_QUIET_S = 60.0  # silence of the log after which the connection is opened again: it may be gone without a notice
_RETRY_S = 2.0
_PATIENCE_S = 600.0  # time without an answer from the cluster after which following ends

# What Ray's client and its libraries raise for a broken connection or an invalid answer. A timeout is an OSError.
_BROKEN = (OSError, RuntimeError, RayError, aiohttp.ClientError)


def connect(address: str | None) -> JobSubmissionClient:
    """A client of the cluster at an address, or at that in the environment. Raises `SettingsError`."""
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)  # it logs each connection that it opens and closes
    if address is not None:
        os.environ["RAY_API_SERVER_ADDRESS"] = address  # else Ray prefers an address in the environment to its argument
    where = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "http://localhost:8265"
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise SettingsError(
            f"{where}: {_first_sentence(error)}. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token or "
            "RAY_AUTH_TOKEN_PATH to a file that holds it"
        ) from error
    except Exception as error:  # Ray, requests, and the parsing of an address raise many kinds
        raise SettingsError(
            f"no cluster accepts jobs at {where}: {_first_sentence(error)}. --address is that of its dashboard, "
            "such as http://HEAD:8265"
        ) from error


def submit(client: JobSubmissionClient, package: JobPackage, name: str | None, notify: Callable[[str], None]) -> str:
    """Send a job; returns its submission id.

    `notify` receives the size of what is sent. Raises `SettingsError` if the cluster doesn't accept the job, as when it has
    one of this name.
    """
    with tempfile.TemporaryDirectory(prefix="assay-job-") as folder:
        archive = Path(folder, "job.zip")
        size = package.write(archive)
        notify(f"packed {size / 1e6:.1f} MB: the code, the recipe, and the built-in models that it names")
        environment = {"working_dir": str(archive), "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_WAIT_S)}}
        try:
            return client.submit_job(entrypoint=ENTRYPOINT, submission_id=name, runtime_env=environment)
        except _BROKEN as error:
            if "already exists" in str(error):
                raise SettingsError(
                    f"the job {name} exists already; give another --submission-id, or leave it out"
                ) from error
            raise SettingsError(f"{client.get_address()} doesn't take the job: {error}") from error


async def follow(
    client: JobSubmissionClient, job: str, show: Callable[[str], None], notify: Callable[[str], None]
) -> JobDetails | None:
    """Show a job's log as it is written, each line once, until the job ends; returns its final details.

    Returns None if the cluster hasn't answered for ten minutes; the job may still run. Ctrl-C and SIGTERM cancel the
    following, not the job.
    """
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # as Ctrl-C does
    log, lost_since = _Log(client, job, show), None
    while True:
        await log.follow()
        try:
            details = await asyncio.to_thread(client.get_job_info, job)
        except _BROKEN as error:
            if lost_since is None:
                lost_since = time.monotonic()
                notify(f"{client.get_address()} doesn't answer: {_first_sentence(error)}; asking again")
            if time.monotonic() - lost_since > _PATIENCE_S:
                return None
        else:
            lost_since = None
            if details.status.is_terminal():
                await log.show_end()
                return details
        await asyncio.sleep(_RETRY_S)


class _Log:
    """A job's log. Every new connection sends it from its beginning, so what has been shown is skipped by its length."""

    def __init__(self, client: JobSubmissionClient, job: str, show: Callable[[str], None]) -> None:
        self._client = client
        self._job = job
        self._show = show
        self._shown = 0

    async def follow(self) -> None:
        """Show what is new until the log ends, the connection breaks, or nothing has come for `_QUIET_S`."""
        offset = 0
        try:
            async with aclosing(self._client.tail_job_logs(self._job)) as chunks:  # type: ignore[type-var]
                while (chunk := await asyncio.wait_for(anext(chunks, None), _QUIET_S)) is not None:
                    self._show_from(offset, chunk)
                    offset += len(chunk)
        except _BROKEN:
            return

    async def show_end(self) -> None:
        """Of a job that has ended, show what a broken connection may have missed of its log."""
        try:
            self._show_from(0, await asyncio.to_thread(self._client.get_job_logs, self._job))
        except _BROKEN:
            return

    def _show_from(self, start: int, text: str) -> None:
        if start + len(text) > self._shown:
            self._show(text[max(0, self._shown - start) :])
            self._shown = start + len(text)


def exit_code(end: JobDetails) -> int:
    """The exit code of a command that followed a job: the job's own; 130 if it was stopped, 3 if it failed without one.

    130 is that of Ctrl-C, and 3 that of a run which ended early and can be resumed.
    """
    if end.status is JobStatus.STOPPED:
        return 130
    code = end.driver_exit_code
    if code is None:
        return 0 if end.status is JobStatus.SUCCEEDED else 3
    return 128 - code if code < 0 else code  # killed by a signal: 128 + its number, as in a shell


def _first_sentence(error: Exception) -> str:
    """The first sentence of an error; the rest of Ray's messages is advice."""
    return str(error).partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__
