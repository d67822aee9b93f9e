"""A package from outside adds a family, a shape, a trainer's format and a logger; one that breaks harms nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import REPOSITORY
from tests.support.commands import assay, summary
from tests.support.endpoints import QUESTION, serving

EXAMPLE = REPOSITORY / "examples" / "plugin"
REPLIES = {"4": 0, "5": 1, "four": 2}

pytestmark = pytest.mark.long


def install(source: Path, target: Path) -> None:
    """Build a distribution's wheel and install it into a folder that then stands on the path."""
    copy = target.parent / f"{target.name}-source"
    shutil.copytree(source, copy)  # the build writes beside its sources
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(copy)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of commands beside which the example is installed."""
    target = tmp_path_factory.mktemp("site") / "packages"
    install(EXAMPLE, target)
    return {"PYTHONPATH": os.pathsep.join([str(target), os.environ["PYTHONPATH"]])}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two logits that are tiny-scalar's and its negative: the reward of good minus bad is twice tiny-scalar's."""
    folder = tmp_path_factory.mktemp("model") / "good-or-bad-tiny"
    shutil.copytree(REPOSITORY / "tiny_models" / "scalar", folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_labels": 2, "id2label": {"0": "good", "1": "bad"}, "label2id": {"good": 0, "bad": 1}}
    (folder / "config.json").write_text(json.dumps(config))
    (weights,) = folder.glob("*.safetensors")
    tensors: dict[str, Any] = dict(load_file(weights))
    (row,) = tensors["score.weight"]
    tensors["score.weight"] = numpy.stack([row, -row])
    save_file(tensors, weights, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "forum.jsonl"
    path.write_text("".join(json.dumps({"title": "Sums", "post": "2 + 2?", "reply": reply}) + "\n" for reply in REPLIES))
    return path


def rewards_of(folder: Path) -> list[float]:
    return [row["reward"] for row in pq.read_table(folder / "parts").to_pylist()]


@pytest.fixture(scope="module")
def scored(installed: dict[str, str], model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scored") / "out"
    done = assay("score", corpus, folder, "--model", model, "--family", "good-minus-bad", "--set", "log=lines", **installed)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_family_and_a_shape_from_outside_score_a_corpus(scored: Path, corpus: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    posts = [json.loads(line) for line in corpus.read_text().splitlines()]
    rows = [{"prompt": f"{post['title']}\n\n{post['post']}", "response": post["reply"]} for post in posts]
    plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary("score", plain, tmp_path / "plain", "--model", "tiny-scalar")
    assert rewards_of(scored) == pytest.approx([2 * reward for reward in rewards_of(tmp_path / "plain")], abs=1e-4)


def test_a_verifier_from_outside_needs_no_engine(installed: dict[str, str], tmp_path: Path) -> None:
    rows = [{"prompt": "?", "response": text, "answer": "red and blue"} for text in ("Blue and red", "blue", " ")]
    (corpus := tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--model", "same-words", "--reference-column", "answer")
    done = assay("score", corpus, tmp_path / "out", *flags, "--unparsed", -1, **installed)
    assert done.returncode == 0, done.stderr
    assert rewards_of(tmp_path / "out") == [1.0, 0.0, None]
    identity = json.loads((tmp_path / "out" / "manifest.json").read_text())["identity"]
    assert (identity["engine"], identity["family_plugin"]) == ("none", "assay-example 1.0")
    checked = assay("check", "same-words", **installed)
    assert checked.returncode == 0, checked.stderr
    assert "conversation 2: reward 0.0000" in checked.stdout


def test_a_run_says_which_version_of_a_plugin_it_is_read_by(scored: Path) -> None:
    identity = json.loads((scored / "manifest.json").read_text())["identity"]
    assert identity["family_plugin"] == identity["shape_plugin"] == "assay-example 1.0"


def test_a_logger_from_outside_gets_the_figures_of_a_run(scored: Path) -> None:
    lines = [json.loads(line) for line in (scored / "figures.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == len(REPLIES)


def test_a_trainers_format_from_outside_is_written(scored: Path, installed: dict[str, str], tmp_path: Path) -> None:
    done = assay("pairs", scored, tmp_path / "pairs", "--for", "ranked-text", **installed)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "pairs").glob("*.jsonl")
    (pair,) = [json.loads(line) for line in file.read_text().splitlines()]
    by_reward = dict(zip(rewards_of(scored), REPLIES, strict=True))
    assert pair == {"prompt": "Sums\n\n2 + 2?", "ranked": [by_reward[max(by_reward)], by_reward[min(by_reward)]]}


def test_help_names_what_a_plugin_adds(installed: dict[str, str]) -> None:
    assert "good-minus-bad" in assay("models", **installed).stdout
    assert "forum" in assay("score", "--help", **installed).stdout


def test_an_endpoint_serves_a_family_from_outside(installed: dict[str, str], model: Path, tmp_path: Path) -> None:
    arguments = ("--model", model, "--family", "good-minus-bad")
    with serving(*arguments, log=tmp_path / "log", **installed) as (address, _):
        body = {"conversations": [{"messages": QUESTION, "responses": ["7"]}]}
        response = httpx.post(f"{address}/v1/rewards", json=body, timeout=60).json()["data"][0]["responses"][0]
    assert response["reward"] == pytest.approx(response["scores"]["good"] - response["scores"]["bad"])


def test_a_checkpoint_of_a_family_from_outside_is_checked(installed: dict[str, str], model: Path) -> None:
    done = assay("check", model, "--family", "good-minus-bad", **installed)
    assert done.returncode == 0, done.stderr
    assert "head: 2 finite outputs" in done.stdout
    assert "conversation 2: reward" in done.stdout


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("", "broken.family defines no FAMILY"),
        ("FAMILY = 'scalar'", "broken.family.FAMILY has a str, and must have a Family"),
        ("from actors.models.scalar import FAMILY", "the name scalar is taken"),
    ],
)
def test_a_plugin_that_breaks_is_named_and_left_out(tmp_path: Path, code: str, reason: str) -> None:
    package = tmp_path / "site" / "broken"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "family.py").write_text(code)
    facts = tmp_path / "site" / "broken-0.3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.3\n")
    (facts / "entry_points.txt").write_text("[assay.families]\nmine = broken.family\n")
    done = assay("models", PYTHONPATH=os.pathsep.join([str(tmp_path / "site"), os.environ["PYTHONPATH"]]))
    assert done.returncode == 0, done.stderr
    assert "scalar" in done.stdout
    assert "the plug-in 'mine' (broken 0.3) is left out of assay.families: " in done.stderr
    assert reason in done.stderr
    assert done.stderr.count("left out") == 1
