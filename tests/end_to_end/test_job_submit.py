"""`assay submit` and `ray job submit`, with the guide's lines, against a real `ray start --head` that asks for a token."""

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from actors.engine.fork_server import SWITCH, share
from tests.conftest import REPOSITORY
from tests.support.commands import kill, parts_of, stamps, summary, wait_until
from tests.support.corpora import lines, rows, scored, write
from tests.support.local_ray import run_here
from tests.support.wire import Wire

PORT, DASHBOARD, CLIENT, AGENT = 20391, 20392, 20393, 20394  # all of its own: other tests' Rays hold the usual ones
ADDRESS = f"http://127.0.0.1:{DASHBOARD}"
TOKEN = secrets.token_hex(32)
BIN = Path(sys.executable).parent
GUIDE = (REPOSITORY / "docs" / "guides" / "clusters.md").read_text()
ROWS = 400
SLOW = {"engine": "fake", "engine_args": {"latency_s": 0.4}, "max_in_flight": 16}  # ten seconds and more for all rows


def environment(**more: str) -> dict[str, str]:
    """As in an activated .venv, with nothing of this test run's own Ray, and a home without a token of Ray's."""
    values = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS" and not name.startswith("RAY_AUTH")}
    return values | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": "/nonexistent"} | more


def trusted(**more: str) -> dict[str, str]:
    """With the token, as the guide has it."""
    return environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN, **more)


@pytest.fixture(scope="module", autouse=True)
def head() -> Iterator[None]:
    """A Ray head of its own, with dashboard and jobs, which answers only who has the token."""
    folder = Path("/tmp") / f"assay-{os.getpid()}"  # Ray's sockets have no room for pytest's long names
    process = subprocess.Popen(
        [
            *(BIN / "ray", "start", "--head", "--block", f"--port={PORT}", f"--dashboard-port={DASHBOARD}"),
            *(f"--ray-client-server-port={CLIENT}", f"--dashboard-agent-listen-port={AGENT}", "--num-cpus=4"),
            *(f"--temp-dir={folder}", "--node-ip-address=127.0.0.1"),
        ],
        env=trusted(**{"RAY_TMPDIR": str(folder), "HOME": os.environ["HOME"], SWITCH: share()}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_it_takes_jobs()
        yield
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()  # told to end, it takes half a minute
        process.wait()
        for member in family:
            kill(member)
        psutil.wait_procs(family, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _until_it_takes_jobs() -> None:
    """A head takes some seconds until it accepts jobs: until then, submitting one fails."""
    for _ in range(60):
        done = command("ray", "job", "submit", "--", "true")
        if done.returncode == 0:
            return
    pytest.fail(done.stdout + done.stderr)


def command(*words: object, cwd: Path = REPOSITORY, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, on the cluster that the environment names."""
    env = env or trusted(RAY_API_SERVER_ADDRESS=ADDRESS)
    return subprocess.run(list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Following:
    """An `assay submit` under way. Its streams are files, to be looked at as they grow."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def job(self) -> str:
        """The submission id."""
        return re.findall(r"submitted as (\S+);", self.err)[0]

    def until(self, pattern: str) -> None:
        """Wait for something in the log, while the command goes on."""
        wait_until(lambda: re.search(pattern, self.out) is not None, psutil.Process(self.process.pid))
        assert re.search(pattern, self.out), self.out + self.err
        assert self.process.poll() is None, "it ended first"

    def ended(self) -> int:
        return self.process.wait(timeout=120)


@contextmanager
def following(
    folder: Path, *more: object, address: str = ADDRESS, program: Sequence[object] = (BIN / "assay",)
) -> Iterator[Following]:
    """`assay submit recipe.yaml` in a folder, until it ends."""
    words = [*program, "submit", "recipe.yaml", "--address", address, *more]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(list(map(str, words)), cwd=folder, env=trusted(), stdout=out, stderr=err)
    try:
        yield Following(process, folder)
    finally:
        process.kill()
        process.wait()


def recipe(folder: Path, engine: dict[str, Any], inputs: str = "corpus.jsonl", **more: Any) -> None:
    """A corpus and a recipe for it, with paths relative to both."""
    write(folder / "corpus.jsonl", lines(rows(ROWS)))
    score = {"corpus": {"inputs": [inputs]}, "output": "scored", "model": {"model": "tiny-attributes"}, "engine": engine}
    (folder / "recipe.yaml").write_text(
        yaml.safe_dump({"score": {**score, "work": {"part_rows": 20, "unit_bytes": 3000}}, **more})
    )


def job(name: str, what: str = "") -> Any:
    """What the cluster says of a job."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.get(f"{ADDRESS}/api/jobs/{name}{what}", headers=headers).raise_for_status().json()


def until_stopped(name: str) -> None:
    wait_until(lambda: job(name)["status"] in ("STOPPED", "FAILED", "SUCCEEDED"), psutil.Process())
    assert job(name)["status"] == "STOPPED"


@pytest.mark.long
def test_rays_line_of_the_guide(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", lines(rows(50)))
    (line,) = re.findall(r"^(ray job submit .*)$", GUIDE, re.MULTILINE)
    line = line.replace("/data/corpus.jsonl", f"{tmp_path}/corpus.jsonl").replace("/data/scored", f"{tmp_path}/scored")
    done = command(*shlex.split(line))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    summary = json.loads((tmp_path / "scored" / "manifest.json").read_text())["summary"]
    assert (summary["rows"], summary["scored"]) == (50, 50)


@pytest.mark.long
def test_our_line_of_the_guide_with_its_progress_as_it_comes(tmp_path: Path) -> None:
    (line,) = re.findall(r"^(assay submit .*)$", GUIDE, re.MULTILINE)
    assert line == "assay submit recipe.yaml --address http://HEAD:8265"
    recipe(tmp_path, SLOW, filter={"scored": "scored", "output": "kept", "where": "reward >= 0"})
    with following(tmp_path) as submitted:
        submitted.until(r"waiting for the first part\n +\d?\d%  ")
        assert job(submitted.job)["status"] == "RUNNING"
        assert submitted.ended() == 0, submitted.out + submitted.err
    assert f"corpus.jsonl is {tmp_path}/corpus.jsonl, which every node must see" in submitted.err
    assert re.search(r"packed \d\.\d MB", submitted.err)
    assert TOKEN not in submitted.out + submitted.err
    assert submitted.out == job(submitted.job, "/logs")["logs"]
    assert json.loads((tmp_path / "scored" / "manifest.json").read_text())["summary"]["scored"] == ROWS
    assert list((tmp_path / "kept").glob("kept-*.jsonl"))


@pytest.mark.long
def test_the_log_is_whole_though_the_connection_goes_silent_and_breaks(tmp_path: Path) -> None:
    recipe(tmp_path, SLOW)
    quick = "import pipelines.run.runtime.submit_job as s; s._QUIET_S = 4.0; from pipelines.cli.app import main; main()"
    with (
        Wire(DASHBOARD) as wire,
        following(tmp_path, address=wire.address, program=(BIN / "python", "-c", quick)) as submitted,
    ):
        submitted.until("starting the engines")
        wire.freeze()
        submitted.until(r"first part\n +\d?\d%  ")
        wait_until(lambda: wire.cut() > 0, psutil.Process(submitted.process.pid))
        assert submitted.ended() == 0, submitted.out + submitted.err
    assert wire.held_back
    assert submitted.out == job(submitted.job, "/logs")["logs"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Missing authentication token"),
        ({"RAY_AUTH_MODE": "token"}, "couldn't find an authentication token"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wr0ng"}, "Invalid authentication token"),
    ],
)
def test_without_the_token_nothing_is_taken(tmp_path: Path, given: dict[str, str], message: str) -> None:
    recipe(tmp_path, {"engine": "fake"})
    before = job("")
    stranger = environment(RAY_API_SERVER_ADDRESS=ADDRESS, **given)
    ours = command(BIN / "assay", "submit", "recipe.yaml", cwd=tmp_path, env=stranger)
    assert ours.returncode == 2
    assert message in ours.stderr
    assert "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN" in ours.stderr
    rays = command("ray", "job", "submit", "--", "true", env=stranger)
    assert rays.returncode == 1
    assert message in rays.stderr
    assert "wr0ng" not in ours.stdout + ours.stderr
    assert len(job("")) == len(before)


FAILING = {"engine": "fake", "engine_args": {"latency_s": 0.5}, "request_timeout_s": 0.01}


@pytest.mark.long
@pytest.mark.parametrize(
    ("inputs", "engine", "code", "message"),
    [
        ("/nowhere/*.jsonl", {"engine": "fake"}, 2, "no file, folder or pattern match for /nowhere/*.jsonl"),
        (
            "corpus.jsonl",
            FAILING,
            3,
            "work.max_failed_fraction allows a share of 0.5\nWhat is written stays, and submit the same job again",
        ),
    ],
)
def test_exit_codes_come_through(tmp_path: Path, inputs: str, engine: dict[str, Any], code: int, message: str) -> None:
    recipe(tmp_path, engine, inputs)
    with following(tmp_path, "--submission-id", f"code-{code}") as submitted:
        assert submitted.ended() == code, submitted.out + submitted.err
    assert message in submitted.out
    more = (
        f". What is written stays. To resume:\n  assay submit recipe.yaml --address {ADDRESS}\n"
        if code == 3
        else "; its log says why\n"
    )
    assert submitted.err.endswith(f"assay: the job code-{code} ended with exit code {code}{more}")
    again = command(BIN / "assay", "submit", "recipe.yaml", "--submission-id", f"code-{code}", cwd=tmp_path)
    assert (again.returncode, "exists already" in again.stderr) == (2, True), again.stderr


@pytest.mark.long
def test_rays_command_tells_the_exit_code_and_paths_that_would_be_lost_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", lines(rows(10)))
    paths = [f"{tmp_path}/corpus.jsonl scored", f"README.md {tmp_path}/scored", f"{tmp_path}/corpus.jsonl $PWD/scored"]
    score = "python -m assay score {} --model tiny-attributes --engine fake"
    script = "; ".join([score.format(path) for path in paths] + ["code=$?; ls; exit $code"])
    done = command("ray", "job", "submit", "--working-dir", ".", "--", "sh", "-c", script)
    assert done.returncode == 1
    assert "failed with exit code 2" in done.stdout
    (name,) = re.findall("Job '(.+)' submitted", done.stdout)
    logs = job(name, "/logs")["logs"]
    assert len(re.findall("lies in the folder that Ray unpacked for this job", logs)) == len(paths)
    assert "\nscored\n" not in logs
    assert "\npipelines\n" in logs
    assert not (tmp_path / "scored").exists()


@pytest.mark.long
def test_no_wait_and_where_the_address_comes_from(tmp_path: Path) -> None:
    recipe(tmp_path, {"engine": "fake"}, "/nowhere.jsonl")
    submit = partial(command, BIN / "assay", "submit", "recipe.yaml", "--no-wait", cwd=tmp_path)
    done = submit()
    assert done.returncode == 0
    assert job(done.stdout.strip())["entrypoint"] == "python -m assay run recipe.yaml"
    elsewhere = trusted(RAY_API_SERVER_ADDRESS="http://127.0.0.1:1", RAY_ADDRESS="127.0.0.1:1")
    submitted = submit("--address", ADDRESS, env=elsewhere)
    assert submitted.returncode == 0, submitted.stderr
    nobody = submit(env=elsewhere)
    assert nobody.returncode == 2
    assert "no cluster accepts jobs at http://127.0.0.1:1" in nobody.stderr


@pytest.mark.long
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_only_the_following(tmp_path: Path, way: signal.Signals) -> None:
    recipe(tmp_path, SLOW)
    with following(tmp_path) as submitted:
        submitted.until("Running entrypoint")
        submitted.process.send_signal(way)
        assert submitted.ended() == 130
    assert f"the job {submitted.job} keeps running" in submitted.err
    assert job(submitted.job)["status"] == "RUNNING"
    last = submitted.err.splitlines()[-1]
    stopped = subprocess.run(last, shell=True, env=trusted(), capture_output=True, text=True, check=False)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    until_stopped(submitted.job)


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_stopped_job_leaves_what_the_same_command_goes_on_with(tmp_path: Path) -> None:
    recipe(tmp_path, {**SLOW, "engine_args": {"latency_s": 1.5}})
    with following(tmp_path) as submitted:
        wait_until(lambda: len(parts_of(tmp_path / "scored")) >= 3, psutil.Process(submitted.process.pid))
        assert command("ray", "job", "stop", submitted.job).returncode == 0
        assert submitted.ended() == 130
    assert submitted.out.endswith("assay: interrupted; what is written stays, and submit the same job again to resume\n")
    before = stamps(tmp_path / "scored")
    assert sum(int(name.split("-")[3]) for name in before) < ROWS
    lines = submitted.err.splitlines()
    assert lines[-2].startswith(f"assay: the job {submitted.job} was stopped")
    recipe(tmp_path, {"engine": "fake"})
    again = command(*shlex.split(lines[-1]), cwd=tmp_path, env=trusted())
    assert again.returncode == 0, again.stdout + again.stderr
    after = stamps(tmp_path / "scored")
    assert {name: after[name] for name in before} == before, "a committed part was written again"
    fake = ("--model", "tiny-attributes", "--engine", "fake")
    calm = summary("score", tmp_path / "corpus.jsonl", tmp_path / "calm", *fake, run=run_here)
    assert calm["scored"] == ROWS
    assert scored(tmp_path / "scored") == scored(tmp_path / "calm")
