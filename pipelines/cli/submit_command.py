"""The command `submit`."""

import asyncio
import functools
import shlex
import sys
from typing import TYPE_CHECKING

import click

from pipelines.cli.flags import OneValue

if TYPE_CHECKING:
    from ray.job_submission import JobDetails

_tell = functools.partial(click.echo, err=True)


@click.command()
@click.argument("recipe")
@click.option(
    "--address",
    cls=OneValue,
    help="the cluster, such as http://HEAD:8265; what RAY_API_SERVER_ADDRESS or RAY_ADDRESS says if not given",
)
@click.option("--submission-id", cls=OneValue, help="name of the job; Ray makes one up if not given")
@click.option("--no-wait", is_flag=True, help="don't follow the job; its name alone is printed on standard output")
def submit(recipe: str, address: str | None, submission_id: str | None, no_wait: bool) -> None:
    """Do what the file RECIPE says as a job on a Ray cluster, and follow it to its end.

    As `run` does, with the code that is here. Relative paths are those seen from here, made absolute; every node must see
    them. The job's log goes to standard output, and its exit code is the command's. Ctrl-C ends only the following.
    """
    from pipelines.runtime import submit_job
    from pipelines.runtime.job_package import job_package
    from pipelines.settings.recipe import read_recipe

    package = job_package(read_recipe(recipe))
    for given, absolute in package.moved.items():
        _tell(f"{given} is {absolute}, which every node must see")
    client = submit_job.connect(address)
    job = submit_job.submit(client, package, submission_id, _tell)
    look = f"RAY_API_SERVER_ADDRESS={client.get_address()} ray job"
    _tell(f"submitted as {job}; to follow it, to see how it is, and to stop it:")
    for what in ("logs --follow", "status", "stop"):
        _tell(f"  {look} {what} {job}")
    if no_wait:
        click.echo(job)
        return
    show = functools.partial(click.echo, nl=False)
    try:
        end = asyncio.run(submit_job.follow(client, job, show, _tell))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _tell(f"assay: not followed any more; the job {job} goes on. To stop it:\n  {look} stop {job}")
        sys.exit(130)
    if end is None:
        _tell(f"assay: {client.get_address()} doesn't answer, and the job {job} may go on. To see how it is:")
        _tell(f"  {look} status {job}")
        sys.exit(3)
    code = submit_job.exit_code(end)
    if code:
        _tell(_how_it_ended(job, end, code, ["assay", "submit", recipe, *(["--address", address] if address else [])]))
    sys.exit(code)


def _how_it_ended(job: str, end: "JobDetails", code: int, again: list[str]) -> str:
    if end.driver_exit_code is not None:
        what = f"ended with exit code {end.driver_exit_code}"
    else:
        what = "was stopped" if code == 130 else f"failed: {end.message}"
    if code in (1, 2, 4):  # the same again would come to the same
        return f"assay: the job {job} {what}; its log says why"
    return f"assay: the job {job} {what}. What is written stays, and this goes on from there:\n  {shlex.join(again)}"
