"""The command line, as a person meets it: help, mistakes, and what is printed."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.commands import assay, refusal_of, sets
from tests.support.corpora import lines, rows, write
from tests.support.local_ray import run_here

FAKE = ("--model", "tiny-attributes", "--engine", "fake")


def test_score_then_filter_with_what_a_person_sees(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(100)) + b"broken\n")
    done = assay("score", corpus, tmp_path / "scored", *FAKE)
    assert done.returncode == 0, done.stderr
    shape, files = done.stderr.splitlines()[:2]
    assert shape.startswith("messages: 100 of 101 rows have ")
    assert shape.endswith("Of the 101 rows looked at, 1 response can't be judged: 1 broken_json")
    assert files.startswith("1 file, "), "Ray's own words come first"
    assert "100%  101 responses" in done.stderr
    assert "\r" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Without a reward: 1 broken_json" in done.stdout
    assert "median" in done.stdout
    assert "made up" in done.stdout
    kept = assay(
        "filter", tmp_path / "scored", tmp_path / "kept", "--where", "reward >= 0 and scores.correctness > -9", "--json"
    )
    counts = json.loads(kept.stdout)
    written = (tmp_path / "kept" / "kept-00000.jsonl").read_bytes().splitlines()
    assert len(written) == counts["kept"] > 0
    assert all(json.loads(line)["reward"] >= 0 for line in written)
    assert counts["kept"] + sum(counts["not_kept"].values()) == 101


@pytest.mark.long
def test_standard_output_is_the_summary_alone_even_when_engines_die(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(100)))
    done = assay("score", corpus, tmp_path / "scored", *FAKE, "--set", "engine.engine_args.die_after=60", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scored"] == 100
    assert "engines died and were started again, " in done.stderr
    assert "it had answered 60 requests" in done.stderr
    assert "raylet" not in done.stderr


def test_an_engine_that_cant_start_is_told_without_a_traceback(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(3)))
    done = assay("score", corpus, tmp_path / "scored", *FAKE, "--set", "engine.engine_args.at={1: explode}")
    assert done.returncode == 3
    assert "the fake engine can't start with these engine arguments: 'explode'" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.jsonl", "out", *FAKE), "no file, folder or pattern match for missing.jsonl"),
        (("c.jsonl", "c.jsonl", *FAKE), "is a file"),
        (("c.jsonl", "out", "--model", "tiny-nothing"), "there is no built-in model 'tiny-nothing'"),
        (("c.jsonl", "out", *FAKE, "--format", "xml"), "--format xml is no shape that Assay knows"),
        (("odd.jsonl", "out", *FAKE), "no known shape fits these rows"),
    ],
)
def test_a_mistake_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    write(tmp_path / "c.jsonl", lines(rows(3)))
    write(tmp_path / "odd.jsonl", lines([{"a": 1}]))
    monkeypatch.chdir(tmp_path)
    assert message in refusal_of("score", *arguments, run=run_here)


def test_a_model_is_explained_by_its_id_without_a_network() -> None:
    done = run_here("models", "explain", "nvidia/Llama-3.3-Nemotron-70B-Reward", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["family"] == "first-logit"
    assert facts["read"] == "the raw logit of token id 0 at the last token"
    assert (facts["trained_on"], facts["order_of_responses"]) == ("up to 4,096 tokens", "doesn't matter")
    assert facts["licence"].startswith("NVIDIA Open Model License")
    shown = run_here("models", "explain", "tiny-attributes").stdout
    assert "0.3 helpfulness + 0.74 correctness" in shown
    assert "NemotronForSequenceClassification" in shown


def test_a_model_whose_numbers_are_others_fails_its_check() -> None:
    done = assay("check", "tiny-scalar", "--engine", "fake", "--json")
    (log,) = map(Path, re.findall(r"^the log of the engine is in (.+)$", done.stderr, re.MULTILINE))
    assert log.exists(), done.stderr
    log.unlink()
    assert done.returncode == 2
    about = json.loads(done.stdout)
    assert "head: 1 finite output" in about["checks"]
    assert about["versions"]["vllm"]
    assert about["error"] in done.stderr
    assert "conversation 1 should have the reward 3.495 (give or take 0.2), and has" in done.stderr


def test_a_check_prints_its_steps_and_nothing_of_vllms_log() -> None:
    done = assay("check", "tiny-scalar")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "importing vLLM",
        "loading tiny-scalar",
        "reading the tokenizer of tiny-scalar",
        "testing tiny-scalar",
    ]
    assert all(line.startswith("ok  ") for line in done.stdout.splitlines())


@pytest.mark.long
def test_a_check_whose_engine_cant_start_says_why_and_resumes_nothing() -> None:
    done = assay("check", "tiny-scalar", "--set", "engine.engine_args.quantization=fp8")
    assert done.returncode == 3
    *_, log, message = done.stderr.splitlines()
    assert "float32 is not supported for quantization method fp8" in message
    assert "Value error" not in message
    assert "resume" not in message
    path = Path(log.removeprefix("the log of the engine is in "))
    path.unlink()  # fails if it isn't there


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_complete_run_is_told_again_without_ray(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(30)))
    first = run_here("score", corpus, tmp_path / "scored", *FAKE)
    again = assay("score", corpus, tmp_path / "scored", *FAKE, RAY_ADDRESS="127.0.0.1:1")  # where nobody is
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert again.stdout == first.stdout
    assert "starting the engines" not in again.stderr


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_principle_is_taken_as_it_is_written(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"prompt": "a", "response": "b"}\n')
    written = {"a": 'accuracy: no "errors" # none', "b": "Yes", "c": "1 = 1"}
    principles = sets(*(f"read.principles.{name}={text}" for name, text in written.items()))
    done = run_here("score", corpus, tmp_path / "out", "--model", "tiny-principle", "--engine", "fake", *principles)
    assert done.returncode == 0, done.stderr
    recipe = yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text())
    assert recipe["score"]["model"]["read"]["principles"] == written
    again = sets("read.principles.a=x", "read.principles.a=y")
    twice = run_here("score", corpus, tmp_path / "no", "--model", "tiny-principle", *again)
    assert (twice.returncode, "--set read.principles.a is given twice" in twice.stderr) == (2, True)
