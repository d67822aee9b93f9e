"""`ray job submit`, with the README's own line, against a real `ray start --head`."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.corpora import lines, rows, write

PORT, DASHBOARD, CLIENT, AGENT = 20391, 20392, 20393, 20394  # all of its own: other tests' Rays hold the usual ones


@pytest.fixture
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Ray head of its own, with dashboard and jobs; the environment to reach it with."""
    folder = Path("/tmp") / f"assay-{os.getpid()}"  # Ray's sockets have no room for pytest's long names
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated .venv
    environment.pop("RAY_ADDRESS", None)
    ray = str(Path(sys.executable).parent / "ray")
    process = subprocess.Popen(
        [
            *(ray, "start", "--head", "--block", f"--port={PORT}", f"--dashboard-port={DASHBOARD}"),
            *(f"--ray-client-server-port={CLIENT}", f"--dashboard-agent-listen-port={AGENT}", "--num-cpus=4"),
            *(f"--temp-dir={folder}", "--node-ip-address=127.0.0.1"),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield environment | {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{DASHBOARD}"}
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait()
        for member in family:
            if member.is_running():
                member.kill()
        psutil.wait_procs(family, timeout=60)


def test_the_line_of_the_readme(tmp_path: Path, head: dict[str, str]) -> None:
    write(tmp_path / "corpus.jsonl", lines(rows(50)))
    readme = (REPOSITORY / "README.md").read_text()
    (line,) = re.findall(r"^(ray job submit .*)$", readme, re.MULTILINE)
    line = line.replace("/data/corpus.jsonl", f"{tmp_path}/corpus.jsonl").replace("/data/scored", f"{tmp_path}/scored")
    waiting = _until_it_answers(head)
    assert waiting.returncode == 0, waiting.stderr
    done = subprocess.run(shlex.split(line), cwd=REPOSITORY, env=head, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    summary = json.loads((tmp_path / "scored" / "manifest.json").read_text())["summary"]
    assert (summary["rows"], summary["scored"]) == (50, 50)


def _until_it_answers(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A head takes some seconds until it accepts jobs: until then, submitting one fails."""
    for _ in range(60):
        command = ["ray", "job", "submit", "--", "true"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    return done
