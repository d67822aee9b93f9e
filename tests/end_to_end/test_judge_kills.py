"""A judge's run that is killed goes on: what is committed is never sampled again, and every response is there once."""

import json
from pathlib import Path

import pytest

from actors.engine.fork_server import SWITCH
from tests.support.commands import actors_of, engines_of, kill, parts_of, running, sets, stamps, summary, wait_until
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here
from tiny_models.dialects import judgements

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]

PAIRS = ("--prompt-column", "context", "--response-column", "responses")


def corpus_of(folder: Path, dialect: str, count: int) -> Path:
    """Held-out conversations with the responses that a judge is shown."""
    rows = [
        {"context": judged.case.context, "responses": [answer.text or "." for answer in judged.case.answers]}
        for judged in judgements(dialect, 11, count, "held-out")
    ]
    return write(folder / "pairs.jsonl", lines(rows))


def exported(output: Path) -> list[str]:
    return [json.dumps({name: row[name] for name in row if name != "record"}, sort_keys=True) for row in scored(output)]


def test_killed_rehearsals_end_as_calm_ones(tmp_path: Path) -> None:
    """With votes that are drawn: which they are follows from the seed, whoever asks and whenever."""
    corpus = corpus_of(tmp_path, "genrm", 120)
    command = ("--model", "tiny-genrm", "--engine", "fake", "--votes", 4, *sets("judge.trace=true"), *PAIRS)
    calm = summary("score", corpus, tmp_path / "calm", *command, run=run_here)
    assert calm["rows"] == 120
    assert calm["scored"] == calm["responses"] > 150
    slow = sets("engine.engine_args.latency_s=0.02", "engine.max_in_flight=16", "work.part_rows=8", "work.unit_bytes=4000")
    with running("score", corpus, tmp_path / "out", *command, *slow) as driver:
        wait_until(lambda: len(parts_of(tmp_path / "out")) >= 3, driver)
        for actor in actors_of(driver):
            kill(actor)
        wait_until(lambda: len(parts_of(tmp_path / "out")) > 3, driver)
        kill(driver)
    before = stamps(tmp_path / "out")
    assert 3 < len(before) < 120 / 8
    assert summary("score", corpus, tmp_path / "out", *command, run=run_here)["scored"] == calm["scored"]
    after = stamps(tmp_path / "out")
    assert {name: after[name] for name in before} == before, "a committed part was written again"
    assert exported(tmp_path / "out") == exported(tmp_path / "calm")


def test_a_real_judge_that_is_killed_is_asked_again_only_for_what_is_open(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "genrm", 48)
    one_by_one = sets("judge.trace=true", "work.part_rows=1")
    command = ("score", corpus, tmp_path / "out", "--model", "tiny-genrm", "--votes", 4, *one_by_one, *PAIRS)
    # Slow enough to be interrupted; and vLLM is imported by the command itself, as for a user.
    with running(*command, *sets("engine.max_in_flight=2"), **{SWITCH: ""}) as driver:
        (engine,) = engines_of(driver)
        wait_until(lambda: len(parts_of(tmp_path / "out")) >= 2, driver)
        kill(engine)
        committed = {path.name: path.read_bytes() for path in parts_of(tmp_path / "out")}
        assert 2 <= len(committed) < 48
        wait_until(lambda: len(parts_of(tmp_path / "out")) > len(committed), driver)
        kill(driver)
    counts = summary(*command, run=run_here)
    now = {path.name: path.read_bytes() for path in parts_of(tmp_path / "out")}
    assert {name: now[name] for name in committed} == committed
    rows = scored(tmp_path / "out")
    assert len({(row["row"], row["response_name"]) for row in rows}) == len(rows) == counts["responses"]
    assert len({row["row"] for row in rows}) == counts["rows"] == 48
    assert counts["scored"] >= 0.95 * counts["responses"]
