"""Processes are killed at bad moments; the same command goes on, and the output is as if nothing had happened.

A few moments in every test run, many more under `make chaos`. What is killed is chosen by a seeded generator; when, by
how far the run is.
"""

import functools
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from actors.errors import AuditError, UserError
from pipelines.data.storage import LEASE
from pipelines.data.storage.lease import STALE_S
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.filter_settings import FilterSettings
from tests.support.commands import (
    PATIENCE_S,
    actors_of,
    assay,
    exported,
    kill,
    parts_of,
    running,
    sets,
    stamps,
    summary,
    wait_until,
)
from tests.support.corpora import lines, outcome_of, rows, scored, write
from tests.support.local_ray import run_here

ROWS = 1500
SLOW = sets("engine.engine_args.latency_s=0.05", "engine.max_in_flight=16")
"""Made-up scores come too fast to be interrupted."""


def score(corpus: Path, output: Path, *more: object, model: str = "tiny-attributes") -> tuple[object, ...]:
    return ("score", corpus, output, "--model", model, "--engine", "fake", *more)


def corpus_of(folder: Path, name: str) -> Path:
    broken = [b"{broken\n", b"\n", b"\xff\n"]
    good = [json.dumps(row).encode() + b"\n" for row in rows(ROWS)]
    mixed = [line for number, row in enumerate(good) for line in ([row] if number % 100 else [row, *broken])]
    return write(folder / name, b"".join(mixed))


class Calm(NamedTuple):
    """A corpus, and what a run gives that nobody disturbs."""

    corpus: Path
    output: Path
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def calm_run(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Calm]:
    """The calm run of a corpus of a name, which is done once."""

    @functools.cache
    def run(name: str) -> Calm:
        folder = tmp_path_factory.mktemp("calm")
        corpus = corpus_of(folder, name)
        return Calm(
            corpus, folder / "out", summary(*score(corpus, folder / "out", *sets("work.part_rows=200")), run=run_here)
        )

    return run


def killed_until_done(corpus: Path, output: Path, seed: int, kills: int) -> dict[str, Any]:
    """Kill drivers after random numbers of parts, and actors in between; then let the command end. Its summary."""
    luck = random.Random(seed)
    for attempt in range(kills):
        before = stamps(output)
        goal = len(before) + luck.randint(0, 12)
        cut = sets(f"work.part_rows={luck.randint(15, 60)}", f"work.unit_bytes={luck.randint(3000, 60000)}")
        with running(*score(corpus, output, *SLOW, *cut)) as driver:
            if attempt == 0:
                refused_while_held(corpus, output, driver)
            wait_until(lambda goal=goal: len(parts_of(output)) >= goal, driver)  # type: ignore[misc]
            if luck.random() < 0.5 and (actors := actors_of(driver)):
                kill(luck.choice(actors))
                wait_until(lambda goal=goal: len(parts_of(output)) > goal, driver)  # type: ignore[misc]
            kill(driver)
        after = stamps(output)
        assert {name: after[name] for name in before} == before, "a committed part was written again"
    return summary(*score(corpus, output), run=run_here)


def refused_while_held(corpus: Path, output: Path, driver: psutil.Process) -> None:
    """A folder is written by one run at a time; which holds it as soon as it has started, long before its engines."""
    wait_until((output / LEASE).exists, driver)
    second = assay(*score(corpus, output))
    assert second.returncode == 2
    assert f"is being written by another run: process {driver.pid} on" in second.stderr
    assert driver.is_running()


MANY = [pytest.mark.chaos, pytest.mark.timeout(3600)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "seed", "kills"),
    [
        ("c.jsonl.gz", 15, 2),
        pytest.param("c.jsonl", 1, 3, marks=pytest.mark.chaos),
        *(
            pytest.param(name, seed, 4, marks=MANY)
            for name in ("c.jsonl", "c.jsonl.gz", "c.jsonl.zst")
            for seed in range(10, 16)
        ),
    ],
)
def test_killed_runs_end_as_calm_ones(
    calm_run: Callable[[str], Calm], tmp_path: Path, name: str, seed: int, kills: int
) -> None:
    """And while such a run goes on, a second one of its folder is refused."""
    calm, output = calm_run(name), tmp_path / "out"
    counts = (calm.summary["rows"], calm.summary["scored"], calm.summary["rejected"])
    assert counts == (ROWS + 30, ROWS, 30)
    ended = killed_until_done(calm.corpus, output, seed, kills)
    assert _counts(ended) == _counts(calm.summary)
    assert ended["work"]["seconds"] is None
    assert "a session was killed" in ended["work"]["why"]
    assert not (output / LEASE).exists()
    assert scored(output) == scored(calm.output)


def _counts(ended: dict[str, Any]) -> dict[str, Any]:
    """Without the quantiles, whose sketch depends on how the parts are cut, and how long it took."""
    return {name: value for name, value in ended.items() if name not in ("quantiles", "work")}


@pytest.mark.chaos
@pytest.mark.parametrize("attempt", range(5))
def test_of_two_drivers_that_start_at_once_one_writes_the_folder(tmp_path: Path, attempt: int) -> None:
    corpus, out, calm = corpus_of(tmp_path, "c.jsonl"), tmp_path / "out", tmp_path / "calm"
    summary(*score(corpus, calm))
    with running(*score(corpus, out, *SLOW)) as first, running(*score(corpus, out, *SLOW)) as second:
        codes = [driver.wait(PATIENCE_S) for driver in (first, second)]
    assert sorted(codes) == [0, 2]
    assert summary("status", out)["scored"] == ROWS
    assert exported(out, tmp_path / "kept") == exported(calm, tmp_path / "kept-calm")


@pytest.mark.chaos
@pytest.mark.parametrize("model", ["tiny-attributes", "tiny-scalar"])
def test_a_driver_that_was_stopped_and_goes_on_sees_that_its_folder_is_anothers(tmp_path: Path, model: str) -> None:
    """Its engine isn't stopped: what that commits for another model's run lies beside the parts of that run."""
    corpus, out, calm = write(tmp_path / "c.jsonl", lines(rows(400))), tmp_path / "out", tmp_path / "calm"
    summary(*score(corpus, calm, model=model))
    anew = () if model == "tiny-attributes" else ("--overwrite",)
    with running(*score(corpus, out, *SLOW, *sets("work.part_rows=20"))) as first:
        wait_until(lambda: len(parts_of(out)) > 1, first)
        first.suspend()
        held = json.loads((out / LEASE).read_bytes())
        while (second := assay(*score(corpus, out, *anew, model=model))).returncode == 2:
            assert time.time() < held["renewed"] + 2 * STALE_S, second.stderr
        assert second.returncode == 0, second.stderr
        written = stamps(out)
        first.resume()
        assert first.wait(PATIENCE_S) == 3
    assert anew or stamps(out) == written
    assert summary("status", out)["scored"] == 400
    assert exported(out, tmp_path / "kept") == exported(calm, tmp_path / "kept-calm")


@pytest.mark.long
def test_a_planted_gap_and_a_planted_overlap_are_noticed(calm_run: Callable[[str], Calm], tmp_path: Path) -> None:
    shutil.copytree(calm_run("c.jsonl.gz").output, tmp_path / "out")
    first, second, *_ = parts_of(tmp_path / "out")
    moved = first.read_bytes()
    first.unlink()
    with pytest.raises(UserError, match=r"c\.jsonl\.gz: 0 to"):
        _filter(tmp_path)
    start, end = second.name.split("-")[1:3]
    first.write_bytes(moved)
    (second.parent / second.name.replace(start, f"{int(start) - 5:012d}").replace(end, f"{int(end):012d}")).write_bytes(
        moved
    )
    with pytest.raises(AuditError, match="there twice"):
        _filter(tmp_path)


def _filter(folder: Path) -> None:
    keep(FilterSettings(scored=str(folder / "out"), output=str(folder / "kept"), where="true"))


LOST_PER_PROCESS = 8
"""Answers that each process loses on the way, by Ray's fault injection.

An engine's actor calls the ledger about five times at its start, and then at least three times a block.
"""

FAULTS = {
    "CoreWorkerService.grpc_client.PushTask": {
        "num_failures": LOST_PER_PROCESS,
        "num_lower_bound_resp_failures": LOST_PER_PROCESS,
    }
}


@pytest.mark.long
def test_a_lost_answer_neither_ends_a_run_nor_counts_as_a_death(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", lines(rows(8)))
    command = ("score", corpus, tmp_path / "out", "--model", "tiny-attributes", "--engine", "fake")
    run = assay(*command, RAY_testing_rpc_failure=json.dumps(FAULTS))
    assert run.returncode == 0, run.stderr
    assert outcome_of(tmp_path / "out") == [("scored", None)] * 8
    assert "engines died" not in run.stderr
