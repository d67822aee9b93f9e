"""Long work: stopped by a person or a scheduler, looked at from its folder, asked for again from its recipe."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml

from pipelines.cli.status import RunState, status
from pipelines.data.storage.lease import lease
from tests.conftest import REPOSITORY
from tests.support.commands import parts_of, refusal_of, summary, wait_until
from tests.support.corpora import lines, rows, write
from tests.support.local_ray import run_here
from tests.support.processes import family

FAKE = ("--model", "tiny-attributes", "--engine", "fake", "--set", "engine.engine_args.latency_s=0.5")
SLOW = (*FAKE, "--set", "engine.max_in_flight=20", "--set", "work.part_rows=20")
ROWS = 800  # for 20 seconds: a busy machine must have stopped the run by then


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    ("way", "send"),
    [(signal.SIGINT, os.kill), (signal.SIGTERM, os.kill), (signal.SIGTERM, os.killpg)],
    ids=["Ctrl-C", "a scheduler", "timeout, which stops the whole group"],
)
def test_a_run_that_is_told_to_stop_stops_cleanly_and_says_how_to_go_on(
    tmp_path: Path, way: signal.Signals, send: Callable[[int, int], None]
) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(ROWS)))
    command = [sys.executable, "-m", "assay", "score", str(corpus), str(tmp_path / "out"), *SLOW, "--overwrite"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        driver = psutil.Process(process.pid)
        wait_until(lambda: len(parts_of(tmp_path / "out")) >= 3, driver)
        members = family(driver)
        send(process.pid, way)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "SIGTERM" not in errors
    *_, last = errors.splitlines()
    assert last == "  " + shlex.join(["python", "-m", "assay", *command[3:-1]]), "--overwrite would start again"
    assert psutil.wait_procs(members, timeout=60)[1] == [], "nothing is left behind"

    before = parts_of(tmp_path / "out")
    assert sum(int(part.stem.split("-")[3]) for part in before) < ROWS
    with lease(str(tmp_path / "out")):
        pass  # the next command needn't wait for it
    (note,) = (json.loads(path.read_text()) for path in (tmp_path / "out" / "sessions").iterdir())
    assert note["parts"] == len(before), "a stop is no kill: the time of all parts is known"
    assert status(str(tmp_path / "out")).state is RunState.STOPPED


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_what_was_asked_for_is_beside_the_results(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(20)))
    first = summary("score", corpus, tmp_path / "scored", "--model", "tiny-attributes", "--engine", "fake", run=run_here)
    kept = summary("filter", tmp_path / "scored", tmp_path / "kept", "--top-k", "1", "--per", "row", run=run_here)
    assert summary("run", tmp_path / "scored" / "recipe.yaml", run=run_here) == first
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()}
    assert summary("run", tmp_path / "kept" / "recipe.yaml", run=run_here) == kept
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()} == files, "nothing was to do"


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_recipe_scores_filters_evaluates_and_reports_once(tmp_path: Path) -> None:
    pairs = [{"prompt": f"{number}?", "chosen": f"It is {number}.", "rejected": "No."} for number in range(30)]
    corpus = write(tmp_path / "c.jsonl", lines(pairs))
    scored = str(tmp_path / "scored")
    steps = {
        "score": {"inputs": str(corpus), "output": scored, "model": "tiny-attributes", "engine": "fake"},
        "filter": {"scored": scored, "output": str(tmp_path / "kept"), "where": "reward > 0"},
        "evaluate": {"scored": scored, "output": str(tmp_path / "evaluated")},
        "report": {"scored": scored, "output": str(tmp_path / "report.html")},
    }
    file = write(tmp_path / "recipe.yaml", yaml.safe_dump(steps).encode())
    first, again = (run_here("run", file), run_here("run", file))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert "Written to" in first.stdout
    assert f"evaluate: nothing to do: {tmp_path}/evaluated has these results already" in again.stderr
    assert "Nothing to do" in again.stdout
    file.write_text(yaml.safe_dump({**steps, "report": {"scored": str(tmp_path / "nowhere")}}))
    assert "nowhere isn't there" in refusal_of("run", file, run=run_here)
