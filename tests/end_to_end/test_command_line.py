"""The command line, as a person meets it: help, mistakes, and what is printed."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file, save_file

from pipelines.cli import app
from tests.conftest import REPOSITORY
from tests.support.commands import assay, sets
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
        "filter", tmp_path / "scored", tmp_path / "kept", "--keep", "reward >= 0 and scores.correctness > -9", "--json"
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


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_recipe_does_both(tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", lines(rows(20)))
    recipe = f"""
score:
  corpus: {{inputs: [{tmp_path}/c.jsonl]}}
  output: {tmp_path}/scored
  model: {{model: tiny-attributes}}
  engine: {{engine: fake}}
filter: {{scored: {tmp_path}/scored, output: {tmp_path}/kept, keep: "reward is not null"}}
"""
    (tmp_path / "recipe.yaml").write_text(recipe)
    done = run_here("run", tmp_path / "recipe.yaml")
    assert done.returncode == 0, done.stderr
    assert "Kept 20 of 20 responses" in done.stdout
    (tmp_path / "recipe.yaml").write_text(recipe.replace("engine: fake", "engin: fake"))
    wrong = run_here("run", tmp_path / "recipe.yaml")
    assert wrong.returncode == 2
    assert "score.engine.engin isn't a setting; did you mean engine" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("missing.jsonl", "out", *FAKE), "no file, folder or pattern match for missing.jsonl"),
        (("c.txt", "out", *FAKE), "a file name extension that Assay doesn't read"),
        (("c.jsonl", "c.jsonl", *FAKE), "is a file"),
        (("c.jsonl", "used", *FAKE), "holds something else than a scored corpus"),
        (("c.jsonl", "out", "--model", "tiny-nothing"), "there is no built-in model 'tiny-nothing'"),
        (("c.jsonl", "out", "--model", "./nowhere"), "there is no model folder ./nowhere"),
        (("c.jsonl", "out", "--model", "./headless"), "has no score.weight"),
        (("c.jsonl", "out", "--model", "./unbiased"), "has no score.bias"),
        (("c.jsonl", "out", "--model", "./causal"), "if it is one, say which with --family: first-logit: the logit"),
        (("c.jsonl", "out", "--model", "./causal", "--family", "scalar"), "which --family scalar can't read"),
        (
            ("c.jsonl", "out", *FAKE, "--set", "model.weights.wit=1"),
            "wit, which attributes doesn't have; it has helpfulness",
        ),
        (("c.jsonl", "out", *FAKE, "--format", "xml"), "--format xml is no shape that Assay knows"),
        (
            ("c.jsonl", "out", *FAKE, "--set", "engine.engine_args.seed"),
            "--set takes section.name=value, and 'engine.engine_args.seed' isn't",
        ),
        (("c.jsonl", "out", *FAKE, "--set", "engine.engine_args.seed=["), "seed isn't valid YAML"),
        (("c.jsonl", "out", *FAKE, "--set", "work.part_rows=0"), "--set work.part_rows=0: must be at least 1"),
        (("c.jsonl", "out", *FAKE, "--set", "render.max_model_len=99999"), "is more than tiny-attributes takes"),
        (("odd.jsonl", "out", *FAKE), "no known shape fits these rows"),
    ],
)
def test_a_mistake_is_told_in_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    write(tmp_path / "c.jsonl", lines(rows(3)))
    write(tmp_path / "odd.jsonl", lines([{"a": 1}]))
    write(tmp_path / "c.txt", b"")
    write(tmp_path / "used" / "thesis.doc", b"")
    _models(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", "score", *arguments])
    with pytest.raises(SystemExit) as ended:
        app._run()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def _models(folder: Path) -> None:
    """Folders that look like reward models and are none."""
    built_in = REPOSITORY / "tiny_models" / "attributes"
    weights = load_file(built_in / "model.safetensors")
    config = json.loads((built_in / "config.json").read_text())
    for name, drop in (("headless", "score.weight"), ("unbiased", "score.bias"), ("causal", "")):
        (folder / name).mkdir()
        architecture = "NemotronForCausalLM" if name == "causal" else config["architectures"][0]
        (folder / name / "config.json").write_text(json.dumps(config | {"architectures": [architecture]}))
        save_file({key: value for key, value in weights.items() if key != drop}, folder / name / "model.safetensors")


def test_a_model_is_explained_by_its_id_without_a_network() -> None:
    done = run_here("models", "explain", "nvidia/Llama-3.3-Nemotron-70B-Reward", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["family"] == "first-logit"
    assert found["read"] == "the raw logit of token id 0 at the last token"
    assert (found["trained on"], found["order of responses"]) == ("up to 4,096 tokens", "doesn't matter")
    assert found["licence"].startswith("NVIDIA Open Model License")
    shown = run_here("models", "explain", "tiny-attributes").stdout
    assert "0.3 helpfulness + 0.74 correctness" in shown
    assert "NemotronForSequenceClassification" in shown


def test_a_model_that_nobody_knows_isnt_explained() -> None:
    done = run_here("models", "explain", "./nowhere")
    assert done.returncode == 2
    assert "there is no model folder ./nowhere" in done.stderr


def test_a_model_whose_numbers_are_others_fails_its_check() -> None:
    done = assay("check", "tiny-scalar", "--engine", "fake")
    (log,) = map(Path, re.findall(r"^the log of the engine is in (.+)$", done.stderr, re.MULTILINE))
    assert log.exists(), done.stderr
    log.unlink()
    assert done.returncode == 2
    assert "ok  head: 1 finite output" in done.stdout
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
