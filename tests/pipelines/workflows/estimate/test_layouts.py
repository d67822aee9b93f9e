"""`assay plan`: layouts for people, and the table of docs/guides/planning.md."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.engine.engine_arguments import check_installed
from actors.errors import SettingsError
from pipelines.cli.app import cli
from pipelines.settings.estimate_settings import LayoutSettings
from pipelines.settings.run_settings import ScoreSettings
from pipelines.workflows.estimate.layouts import layout_of, layout_table
from tests.conftest import REPOSITORY

LARGE = "nvidia/Nemotron-4-340B-Reward"


def run(*words: object) -> str:
    done = CliRunner().invoke(cli, ["plan", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_guide_has_the_table_of_the_code() -> None:
    assert run("--table") == "\n".join(layout_table()) + "\n"
    assert run("--table") in (REPOSITORY / "docs" / "guides" / "planning.md").read_text()


def test_a_layout_with_its_arithmetic() -> None:
    first, second, options = run("--model", LARGE).splitlines()
    assert first == "TP 8 x PP 2: 16 GPUs for an engine"
    assert second.startswith("TP 8 x PP 2: 39.7 weights + ")
    assert options == "Options of `assay score`: --tensor-parallel 8 --set engine.pipeline_parallel=2"
    layout = json.loads(run("--model", LARGE.lower(), "--set", "card.precision=fp8", "--json"))
    assert (layout["tensor_parallel"], layout["pipeline_parallel"], layout["gpus"]) == (8, 1, 8)
    assert "weights" in layout["arithmetic"]


def test_a_checkpoint_that_is_here() -> None:
    assert run("--model", "tiny-attributes", "--gpu", "141GB").splitlines()[0] == "TP 1: 1 GPU for an engine"


def test_a_checkpoint_without_its_weights_has_the_layout_of_one_with_them(tmp_path: Path) -> None:
    for name in ("scalar", "attributes", "policy"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(BUILT_IN / name / "config.json", folder)
        bare, whole = (layout_of(LayoutSettings(model=model))[0] for model in (str(folder), f"tiny-{name}"))
        assert bare.weights == pytest.approx(whole.weights, rel=0.01)


def test_a_model_in_float32_takes_twice_the_memory() -> None:
    words = ("--model", "nvidia/Llama-3.3-Nemotron-70B-Reward", "--set", "card.context=8192")
    assert run(*words).startswith("TP 4: 4 GPUs for an engine\nTP 4: 32.9 weights + 5.0 cache")
    assert run(*words, "--set", "model.dtype=float16") == run(*words)
    exact = run(*words, "--set", "model.dtype=float32")
    assert exact.startswith("TP 8: 8 GPUs for an engine\nTP 8: 32.9 weights + 5.0 cache")
    assert run(*words, "--set", "model.dtype=float32", "--set", "card.precision=bfloat16") == run(*words)


def test_a_checkpoint_that_is_here_is_laid_out_in_its_precision() -> None:
    exact, half = (layout_of(LayoutSettings(model="tiny-attributes", dtype=dtype))[0] for dtype in ("auto", "bfloat16"))
    assert (exact.weights, exact.cache) == (2 * half.weights, 2 * half.cache)


@pytest.mark.parametrize(
    ("model", "planned", "options"),
    [
        ("tiny-attributes", {}, ""),
        ("tiny-attributes", {"dtype": "bfloat16"}, "--set model.dtype=bfloat16"),
        ("tiny-attributes", {"precision": "bfloat16"}, "--set model.dtype=bfloat16"),
        (
            "tiny-attributes",
            {"precision": "fp8"},
            "--set model.dtype=bfloat16 --set engine.engine_args.quantization=fp8",
        ),
        ("Salesforce/FARE-8B", {"dtype": "float32"}, "--tensor-parallel 2 --set model.dtype=float32"),
        ("Salesforce/FARE-8B", {"dtype": "float16"}, ""),
    ],
)
def test_a_precision_that_isnt_the_checkpoints_is_among_the_options(
    model: str, planned: dict[str, Any], options: str
) -> None:
    assert layout_of(LayoutSettings(model=model, **planned))[1] == options


def test_the_options_of_a_layout_are_options_of_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Given to the command as they are printed, they reach the settings of its engines."""
    ultra = "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-GenRM"
    words = ("--gpu", "H200", "--set", "card.precision=fp8", "--set", "card.gpu_memory_utilization=0.95")
    printed = run("--model", ultra, *words, "--tensor-parallel", 8, "--set", "card.pipeline_parallel=2")
    options = shlex.split(printed.splitlines()[2].removeprefix("Options of `assay score`: "))
    seen: list[ScoreSettings] = []
    monkeypatch.setattr("pipelines.run.scoring.score_corpus.score", lambda settings, *_, **__: seen.append(settings))
    (tmp_path / "c.jsonl").write_text("{}\n")
    CliRunner().invoke(cli, ["score", str(tmp_path / "c.jsonl"), str(tmp_path / "out"), "--model", ultra, *options])
    engine = seen[0].engine
    assert (engine.tensor_parallel, engine.pipeline_parallel) == (8, 2)
    expected = {"enable_expert_parallel": True, "gpu_memory_utilization": 0.95, "quantization": "fp8"}
    assert engine.engine_args == expected
    check_installed(engine)


def test_the_share_of_memory_that_was_planned_with_is_given_to_vllm_whose_default_is_another() -> None:
    given = run("--model", LARGE, "--set", "card.gpu_memory_utilization=0.9").splitlines()[2]
    assert given.endswith(" --set engine.engine_args.gpu_memory_utilization=0.9")
    assert "gpu_memory_utilization" not in run("--model", LARGE)


def test_a_longer_context_takes_more() -> None:
    judge = "nvidia/Qwen3-Nemotron-32B-GenRM-Principle"
    usual, long = (layout_of(LayoutSettings(model=judge, context=tokens))[0] for tokens in (None, 131_072))
    assert (usual.cached_tokens, long.cached_tokens) == (65_536, 4 * 131_072)
    assert long.layout.gpus > usual.layout.gpus


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--model is missing; --table shows"),
        ({"model": LARGE, "tensor_parallel": 8}, r"it doesn't fit\. TP 8: .* This does: TP 8 x PP 2"),
        ({"model": LARGE, "tensor_parallel": 8, "gpus_per_node": 4}, "a node has 4 GPUs"),
        ({"model": LARGE, "pipeline_parallel": 2}, "pipeline_parallel goes with --tensor-parallel"),
        ({"model": LARGE, "gpu": "none"}, "a machine without GPUs has no layout"),
        ({"model": "somebody/something"}, "the size of somebody/something isn't known"),
    ],
)
def test_what_cant_be_planned(options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        layout_of(LayoutSettings(**options))
