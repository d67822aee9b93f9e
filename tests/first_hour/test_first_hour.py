"""The first hour of a new user, as thirteen jobs: each command as it would be typed, and what must come of it.

The corpora are of the kinds that people bring: benchmark files, labelled preferences, conversations with many turns, nested
folders with broken files, prompts for a policy. The engine is the fake one, whose rewards are made up, as the way is what is
tried here and not the numbers. Commands run in this process and share its Ray, but for the interruption and the program in
Python, which have theirs.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tests.conftest import REPOSITORY
from tests.support import commands
from tests.support.commands import parts_of, running, sets, wait_until
from tests.support.corpora import chat, lines, rows, scored, write
from tests.support.endpoints import completion, listening
from tests.support.local_ray import run_here

summary = partial(commands.summary, run=run_here)
refusal_of = partial(commands.refusal_of, run=run_here)

FAKE = ("--model", "tiny-attributes", "--engine", "fake")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.usefixtures("local_ray")]


def preferences(count: int) -> list[dict[str, Any]]:
    """Labelled pairs in a trainer's form, with columns of their owner."""
    pairs = [{"chosen": f"It is {number + 1}.", "rejected": f"It is {number}."} for number in range(count)]
    return [{"id": f"p{number}", "prompt": f"What is {number} + 1?", **pair} for number, pair in enumerate(pairs)]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows that a command wrote as JSONL."""
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_benchmark_files(shared_data: Path, tmp_path: Path) -> None:
    judgebench = summary("score", shared_data / "judgebench" / "gpt-4o.jsonl", tmp_path / "jb", "--limit", 40, *FAKE)
    assert (judgebench["rows"], judgebench["responses"]) == (40, 80)
    rm_bench = summary("score", shared_data / "rm-bench" / "chat_filtered.json", tmp_path / "rm", "--limit", 10, *FAKE)
    assert (rm_bench["rows"], rm_bench["responses"]) == (10, 60), "three chosen and three rejected each"
    for figures in (judgebench, rm_bench):
        assert figures["scored"] + sum(figures["reasons"].values()) == figures["responses"]


def test_a_labelled_preference_corpus(tmp_path: Path) -> None:
    corpus = write(tmp_path / "preferences.jsonl", lines(preferences(40)))
    labels = summary("score", corpus, tmp_path / "scored", *FAKE)["labels"]
    assert labels["pairs"] == 40 == labels["agree"] + labels["disagree"] + labels["equal"]
    assert 0 < labels["agree"] < 40, "made-up rewards agree with some labels"
    made_up = sets("labels=agree", "fake_ok=true")
    counts = summary("pairs", tmp_path / "scored", tmp_path / "pairs", "--for", "trl", *made_up)
    pairs = read_rows(tmp_path / "pairs")
    assert len(pairs) == counts["rows"] == labels["agree"]
    assert {pair["id"] for pair in pairs} <= {f"p{number}" for number in range(40)}, "columns of the input come along"


def test_conversations_of_which_every_turn_is_judged(tmp_path: Path) -> None:
    turns = [{"role": role, "content": f"{role} {number}"} for number in range(3) for role in ("user", "assistant")]
    conversations = [{"id": number, "messages": turns[: 2 + number % 5 // 2 * 2]} for number in range(30)]
    corpus = write(tmp_path / "sft.jsonl", lines(conversations))
    counts = summary("score", corpus, tmp_path / "scored", *sets("corpus.turns=all"), *FAKE)
    assert counts["rows"] == 30 < counts["responses"]
    kept = summary("filter", tmp_path / "scored", tmp_path / "kept", "--top-fraction", 0.5, "--rows", "responses")
    responses = read_rows(tmp_path / "kept")
    assert len(responses) == kept["kept"] == round(counts["scored"] / 2)
    assert all(row["prompt"][-1]["role"] == "user" and row["response"].startswith("assistant") for row in responses)
    whole = run_here("filter", tmp_path / "scored", tmp_path / "whole", "--top-fraction", 0.5)
    assert "--rows responses" in whole.stdout + whole.stderr, "rows written with all their responses are spoken of"


def test_nested_files_of_two_schemas_with_broken_ones(tmp_path: Path) -> None:
    for number in range(30):
        content = preferences(3) if number % 2 else rows(4)
        broken = b'{"messages": [\n' if number % 10 == 0 else b""
        write(tmp_path / "corpus" / f"part{number // 10}" / f"{number:02}.jsonl", lines(content) + broken)
    (tmp_path / "corpus" / "notes.txt").write_text("left out, and named")
    message = refusal_of("score", tmp_path / "corpus", tmp_path / "guessed", *FAKE)
    assert "--format mixed" in message
    counts = summary("score", tmp_path / "corpus", tmp_path / "scored", "--format", "mixed", *FAKE)
    assert counts["rows"] == 15 * 3 + 15 * 4 + 3
    assert counts["responses"] == 15 * 6 + 15 * 4 + 3
    assert counts["reasons"]["broken_json"] == 3
    assert any("notes.txt" in name for name in counts["left_out"])
    assert counts["shapes"] == {"messages": 60, "preference": 45}


class UnreliableEndpoint:
    """A policy's endpoint that fails in five ways: busy, overloaded, garbled, cut off without an answer, and refusing."""

    FAULTS = ("429", "503", "garbled", "gone")

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.app = FastAPI()
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.complete)

    async def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "policy", "object": "model", "created": 0, "owned_by": "me"}]}

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        text, seed = body["messages"][-1]["content"], body["seed"]
        if text.startswith("Refuse"):
            self.faults["refused"] += 1
            return JSONResponse({"error": {"message": "no"}}, 400)
        fault = self.FAULTS[seed % 4]
        if self.faults[fault] < 5:
            self.faults[fault] += 1
            if fault == "garbled":
                return Response("<html>", media_type="text/html")
            return JSONResponse({"error": {"message": fault}}, {"429": 429, "503": 503, "gone": 500}[fault])
        return JSONResponse(completion({"content": f"{text} {seed}"}))


@pytest.fixture
def unreliable() -> Iterator[tuple[UnreliableEndpoint, str]]:
    endpoint = UnreliableEndpoint()
    with listening(endpoint.app) as address:
        yield endpoint, f"{address}/v1"


def test_best_of_eight_with_an_endpoint_that_fails(unreliable: tuple[UnreliableEndpoint, str], tmp_path: Path) -> None:
    endpoint, address = unreliable
    texts = [*(f"What is {number} + 1?" for number in range(12)), "Refuse this."]
    prompts = [{"id": number, "prompt": text} for number, text in enumerate(texts)]
    corpus = write(tmp_path / "prompts.jsonl", lines(prompts))
    judged = ("--judge", "tiny-attributes", "--engine", "fake", "-n", 8)
    counts = summary("sample", corpus, tmp_path / "drawn", "--policy", address, *judged)
    assert set(endpoint.faults) == {*UnreliableEndpoint.FAULTS, "refused"}
    assert counts["scored"] == 12 * 8, "what failed for a time was drawn again"
    assert counts["reasons"] == {"endpoint_refused": 8}, "what is refused each time has failed, and is counted"
    summary("choose", tmp_path / "drawn", tmp_path / "best", "--strategy", "best", "--per", "row")
    best = read_rows(tmp_path / "best")
    assert [row["id"] for row in best] == list(range(12)), "each prompt's best, with the input's own columns"
    assert summary("sample", corpus, tmp_path / "drawn", "--policy", address, *judged)["scored"] == 12 * 8


def test_a_judge_with_principles(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(12)))
    judge = ("--model", "tiny-genrm-principle", "--engine", "fake")
    assert "--set principles.NAME=TEXT" in refusal_of("score", corpus, tmp_path / "none", *judge)
    principles = sets("read.principles.correctness=whether it is right", "read.principles.brevity=whether it is brief")
    counts = summary("score", corpus, tmp_path / "scored", *judge, *principles, *sets("judge.trace=true"))
    assert counts["scored"] + sum(counts["reasons"].values()) == 12
    assert {"correctness", "brevity"} <= {key for row in scored(tmp_path / "scored") for key in row["scores"] or {}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"promt": "x"}, "did you mean prompt"),
        ({"prompt": "{{ response"}, "not a valid Jinja template"),
        ({"pattern": "("}, "not a valid regular expression"),
        ({"low": None}, "low and high"),
        ({"prompt": "Judge {{ conversation }}."}, "no {{ response }}"),
    ],
    ids=["name", "template", "pattern", "scale", "response"],
)
def test_a_rubric_with_a_mistake(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    rubric = {"prompt": "{{ conversation }}\n{{ response }}\nScore:", "pattern": "([1-5])", "low": 1, "high": 5} | change
    path = tmp_path / "rubric.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in rubric.items() if value is not None}))
    corpus = write(tmp_path / "c.jsonl", lines(rows(2)))
    message = refusal_of("score", corpus, tmp_path / "out", "--model", "tiny-r3", "--rubric", path, "--engine", "fake")
    assert words in message
    assert "rubric.yaml" in message


def test_an_ensemble_with_suspects(tmp_path: Path) -> None:
    answers = [chat(f"What is {number // 16} + 1?", f"It is {number}.", id=number) for number in range(160)]
    corpus = write(tmp_path / "c.jsonl", lines(answers))
    models = ("--model", "tiny-scalar", "--model", "tiny-first-logit", "--model", "tiny-attributes")
    options = ("--engine", "fake", *sets("combination.suspect_reward=0.5"))
    counts = summary("ensemble", corpus, tmp_path / "both", *models, *options)
    suspects = counts["flags"]["suspect"]
    assert suspects > 0
    table = duckdb.execute(f"select count(*) from '{tmp_path}/both/parts/*.parquet' where suspect").fetchall()
    assert table == [(suspects,)]
    kept = summary("filter", tmp_path / "both", tmp_path / "kept", "--where", "not suspect")
    assert kept["kept"] == 160 - suspects


def test_an_interruption(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(600)))
    slow = sets("work.part_rows=20", "engine.engine_args.latency_s=0.05", "engine.max_in_flight=16")
    command = ("score", corpus, tmp_path / "out", *FAKE, *slow)
    with running(*command) as driver:
        wait_until(lambda: len(parts_of(tmp_path / "out")) > 2, driver)
        driver.send_signal(signal.SIGINT)
        driver.wait(60)
    early = len(parts_of(tmp_path / "out"))
    assert 2 < early < 30
    assert "stopped" in run_here("status", tmp_path / "out").stdout
    assert summary(*command)["scored"] == 600
    again = run_here(*command)
    assert again.returncode == 0
    parts = len(parts_of(tmp_path / "out"))  # where a run was stopped decides how the rest was cut
    assert f"nothing is left to score, {parts} parts are there" in again.stderr


MISTAKES = {
    "scor: {}": "did you mean score",
    "score: {model: tiny-scalar, output: o}": "score.inputs is missing",
    "score: {inputs: c.jsonl, output: o, modell: tiny-scalar}": "did you mean model",
    "score: {inputs: c.jsonl, output: o, model: tiny-scaler}": "tiny-scalar",
    "score: {inputs: c.jsonl, output: o, model: tiny-scalar, engine: {engine: fak}}": "'fake'",
    "score: {inputs: c.jsonl, output: o, model: tiny-scalar, work: {max_failed_fraction: 2}}": "max_failed_fraction",
    "score: {inputs: missing.jsonl, output: o, model: tiny-scalar}": "missing.jsonl",
    "score: [a, b]": "score",
    "filter: {scored: s, where: 'reward > 0', top_fraction: 2}": "top_fraction",
    "{": "line",
}


@pytest.mark.parametrize("recipe", MISTAKES, ids=range(len(MISTAKES)))
def test_a_recipe_with_a_mistake(recipe: str, tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", lines(rows(2)))
    (tmp_path / "recipe.yaml").write_text(recipe.replace("c.jsonl", str(tmp_path / "c.jsonl")))
    message = refusal_of("run", tmp_path / "recipe.yaml")
    assert MISTAKES[recipe] in message
    for programmers in ("valid tuple", "instance of", "Value error", "Input should", "()"):
        assert programmers not in message
    assert len(message) < 1500


def test_a_plan(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(300)))
    done = run_here("plan", corpus, "--model", "tiny-attributes", "--tokens-per-s", 1000)
    assert done.returncode == 0, done.stderr
    counts = summary("score", corpus, tmp_path / "scored", *FAKE)
    assert f"{counts['prompt_tokens']:,}" in done.stdout, "of a small corpus the plan counts all rows"


def test_looking(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*rows(20), {"messages": []}]))
    summary("score", corpus, tmp_path / "scored", *FAKE)
    texts = duckdb.execute(
        f"select id, response_text from '{tmp_path}/scored/parts/*.parquet' where status = 'scored' order by id"
    ).fetchall()
    assert texts == [(number, f"It is {number + 1}.") for number in range(20)], "no knowledge of the input's shape is needed"
    assert "complete" in run_here("status", tmp_path / "scored").stdout
    program = (
        "import sys; from datasets import load_dataset\n"
        "print(load_dataset(sys.argv[1], split='train', cache_dir=sys.argv[2]).num_rows)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "scored", tmp_path / "cache"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert loaded.stdout.split()[-1] == "21"


def test_python(tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", lines(rows(50)))
    program = (
        "from assay import filter, score\n"
        "summary = score('c.jsonl', 'scored', model='tiny-attributes', engine='fake')\n"
        "print(summary.scored, filter('scored', 'kept', 'reward > 0').responses)\n"
        "score('c.jsonl', 'other', model='tiny-attributes', engine='fake', prompt_colum='x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "50 50" in done.stdout, done.stderr
    assert "did you mean prompt_column" in done.stderr.splitlines()[-1]
