"""A recipe as a job on a cluster, through Ray's own client: submitted, and followed to its end.

What a connection does says nothing about the job: one that breaks, or is silent, is made anew, and only the cluster's word
ends the following.
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
from pipelines.runtime.job_package import JobPackage
from pipelines.settings.recipe import NAME

ENTRYPOINT = f"python -m pipelines run {NAME}"

_STOP_WAIT_S = 30
"""How long a job has to stop by itself, instead of Ray's 3 s: its engines and placement groups are to go, too."""
_QUIET_S = 60.0
"""A log that was silent for so long may be a connection that nobody told us is gone."""
_AGAIN_S = 2.0
_PATIENCE_S = 600.0
"""How long a cluster may not answer."""

_BROKEN = (OSError, RuntimeError, RayError, aiohttp.ClientError)
"""What Ray's client and its libraries raise, of a connection and of an answer that isn't one. A timeout is an OSError."""


def connect(address: str | None) -> JobSubmissionClient:
    """A client of the cluster at an address, or where the environment says. Raises `SettingsError`."""
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)  # it tells of each connection that it opens and closes
    if address is not None:
        os.environ["RAY_API_SERVER_ADDRESS"] = address  # else Ray prefers what is in the environment to what it is told
    where = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "http://localhost:8265"
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise SettingsError(
            f"{where}: {_first_words(error)}. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token or "
            "RAY_AUTH_TOKEN_PATH to a file that holds it"
        ) from error
    except Exception as error:  # whatever Ray, requests or a name that is no address raise
        raise SettingsError(
            f"there is no cluster that takes jobs at {where}: {_first_words(error)}. --address is that of its dashboard, "
            "such as http://HEAD:8265"
        ) from error


def submit(client: JobSubmissionClient, package: JobPackage, name: str | None, tell: Callable[[str], None]) -> str:
    """Send a job. Returns its submission id. Raises `SettingsError` if the cluster doesn't take it."""
    with tempfile.TemporaryDirectory(prefix="assay-job-") as folder:
        archive = Path(folder, "job.zip")
        size = package.write(archive)
        tell(f"packed {size / 1e6:.1f} MB: the code, the recipe, and the built-in models that it names")
        environment = {"working_dir": str(archive), "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_WAIT_S)}}
        try:
            return client.submit_job(entrypoint=ENTRYPOINT, submission_id=name, runtime_env=environment)
        except _BROKEN as error:
            if "already exists" in str(error):
                raise SettingsError(f"there is a job {name} already; give another --submission-id, or none") from error
            raise SettingsError(f"{client.get_address()} doesn't take the job: {error}") from error


async def follow(
    client: JobSubmissionClient, job: str, show: Callable[[str], None], tell: Callable[[str], None]
) -> JobDetails | None:
    """Show a job's log as it comes, each line once, until the job is at its end; returns how that was.

    Returns None if the cluster hasn't answered for ten minutes: the job may go on. Ctrl-C and SIGTERM cancel the following.
    """
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)  # as Ctrl-C does
    log, lost = _Log(client, job, show), None
    while True:
        await log.follow()
        try:
            found = await asyncio.to_thread(client.get_job_info, job)
        except _BROKEN as error:
            if lost is None:
                lost = time.monotonic()
                tell(f"{client.get_address()} doesn't answer: {_first_words(error)}; asking again")
            if time.monotonic() - lost > _PATIENCE_S:
                return None
        else:
            lost = None
            if found.status.is_terminal():
                await log.rest()
                return found
        await asyncio.sleep(_AGAIN_S)


class _Log:
    """What a job has written, of which a new connection tells from its beginning."""

    def __init__(self, client: JobSubmissionClient, job: str, show: Callable[[str], None]) -> None:
        self._client = client
        self._job = job
        self._show = show
        self._shown = 0

    async def follow(self) -> None:
        """Show what is new until the log ends, the connection breaks, or nothing has come for a while."""
        at = 0
        try:
            async with aclosing(self._client.tail_job_logs(self._job)) as chunks:  # type: ignore[type-var]
                while (chunk := await asyncio.wait_for(anext(chunks, None), _QUIET_S)) is not None:
                    self._show_from(at, chunk)
                    at += len(chunk)
        except _BROKEN:
            return

    async def rest(self) -> None:
        """Show what a broken connection kept back of a job that has ended."""
        try:
            self._show_from(0, await asyncio.to_thread(self._client.get_job_logs, self._job))
        except _BROKEN:
            return

    def _show_from(self, at: int, text: str) -> None:
        if at + len(text) > self._shown:
            self._show(text[max(0, self._shown - at) :])
            self._shown = at + len(text)


def exit_code(end: JobDetails) -> int:
    """What a command ends with that stands for a job: the job's own code; 130 if it was stopped, 3 if it has none."""
    if end.status is JobStatus.STOPPED:
        return 130
    code = end.driver_exit_code
    if code is None:
        return 0 if end.status is JobStatus.SUCCEEDED else 3
    return 128 - code if code < 0 else code  # killed by a signal, as a shell tells it


def _first_words(error: Exception) -> str:
    """What an error says first; whatever else Ray says is advice."""
    return str(error).partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__
