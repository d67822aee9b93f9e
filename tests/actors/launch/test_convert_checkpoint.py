"""A head that is hidden in a language model, written out once: the same numbers, and the checkpoint says how it is read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from actors.checkpoint.checkpoint_files import BUILT_IN, Checkpoint
from actors.errors import AssayError, ModelError
from actors.launch.convert_checkpoint import convert
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.self_test import self_test
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from tests.actors.models import test_principle
from tests.support.models import (
    FIRST_LOGIT,
    LANGUAGE_MODEL_WEIGHTS,
    PRINCIPLE,
    SCALAR,
    SCALAR_CONFIG,
    engine_of,
    write_model,
)


def converted(model: str, folder: Path, family: str | None = None) -> Path:
    texts: list[str] = []
    convert(model, str(folder), None, family, texts.append)
    assert len(texts) == 1
    return folder


def rows_of(name: str) -> Any:
    """The output rows of a built-in language model."""
    return load_file(BUILT_IN / name / "model.safetensors")["lm_head.weight"].float()


def classifier(folder: Path) -> Any:
    return AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)


def test_the_new_head_is_the_difference_of_the_rows_or_the_row_as_it_is(tmp_path: Path) -> None:
    difference, first = converted(PRINCIPLE, tmp_path / "principle"), converted(FIRST_LOGIT, tmp_path / "first")
    rows = rows_of("principle")
    assert torch.equal(classifier(difference).score.weight, rows[7:8] - rows[6:7])
    assert Checkpoint.find(str(difference), None).tensors["score.weight"] == (1, rows.shape[1])
    assert torch.equal(classifier(first).score.weight, rows_of("first-logit")[:1])


def test_the_folder_says_its_family_itself(tmp_path: Path) -> None:
    folder = converted(PRINCIPLE, tmp_path / "converted")
    model = resolve_model(ModelSettings(model=str(folder)), RenderSettings(), tensor_parallel=160)
    assert (model.family_name, dict(model.overrides)) == ("principle", {})
    with pytest.raises(ModelError, match="was converted for --family principle, so --family scalar can't read it"):
        resolve_model(ModelSettings(model=str(folder), family="scalar"), RenderSettings())


class Converted(test_principle.TestTinyPrinciple):
    """The same contract, kept by what the built-in model is converted into."""

    folder: str

    def resolved(self) -> RewardModel:
        return resolve_model(ModelSettings(model=self.folder, read=self.read), RenderSettings(), tensor_parallel=2)


def test_its_numbers_are_those_of_the_language_model(tmp_path: Path) -> None:
    judge = Converted()
    judge.folder = str(converted(PRINCIPLE, tmp_path / "converted"))
    expected = [judge.authors(judge.ids(score_request)) for score_request in judge.compared_requests()[:20]]
    passed: list[str] = []
    with engine_of(judge.resolved(), EngineSettings(tensor_parallel=2)) as engine:
        result = judge.scored(engine, judge.compared_requests()[:20])
        self_test(judge.resolved(), engine, passed.append)
    for rewards, authors in zip(result, expected, strict=True):
        assert rewards == pytest.approx(authors, abs=1e-4)
    assert [check.split(":")[0] for check in passed[-2:]] == ["conversation 1", "conversation 2"], "known by what it was"


def sharded(folder: Path) -> Path:
    """The built-in model in two files and an index, its output rows in the second."""
    weights = load_file(BUILT_IN / "principle" / "model.safetensors")
    shutil.copytree(BUILT_IN / "principle", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    where = {name: f"model-0000{1 + (name == 'lm_head.weight')}-of-00002.safetensors" for name in weights}
    for file in set(where.values()):
        save_file({name: weight for name, weight in weights.items() if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


def test_a_checkpoint_in_several_files_is_converted_too(tmp_path: Path) -> None:
    folder = converted(str(sharded(tmp_path / "old")), tmp_path / "converted", "principle")
    whole = converted(PRINCIPLE, tmp_path / "whole")
    weights, expected = (classifier(path).state_dict() for path in (folder, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "model-00001-of-00002.safetensors").unlink(), "is in a file that isn't here"),
        (
            lambda folder: shutil.copy(folder / "model-00002-of-00002.safetensors", folder / "consolidated.safetensors"),
            r"lm_head\.weight is in \['consolidated\.safetensors', 'model-00002",
        ),
        (
            lambda folder: (folder / "config.json").write_text(
                json.dumps({**json.loads((folder / "config.json").read_text()), "quantization_config": {}})
            ),
            "is quantised, and vLLM would quantise the new head",
        ),
    ],
    ids=["a file is missing", "two heads", "quantised"],
)
def test_what_would_give_a_wrong_head_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], message: str) -> None:
    folder = sharded(tmp_path / "old")
    spoil(folder)
    with pytest.raises(ModelError, match=message):
        convert(str(folder), str(tmp_path / "out"), None, "principle", print)
    assert not (tmp_path / "out").exists()


def test_every_weight_is_kept_and_found_by_the_index(tmp_path: Path) -> None:
    folder = converted(PRINCIPLE, tmp_path / "converted")
    old = load_file(BUILT_IN / "principle" / "model.safetensors")
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == {*old, "score.weight"}
    assert all(torch.equal(load_file(folder / index[name])[name], weight) for name, weight in old.items())
    assert {path.name for path in folder.glob("*.safetensors")} == set(index.values())


def test_what_has_its_head_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tiny-scalar needs no conversion: --family scalar finds its head"):
        convert(SCALAR, str(tmp_path / "out"), None, None, print)
    again = converted(PRINCIPLE, tmp_path / "converted")
    with pytest.raises(ModelError, match="needs no conversion: --family principle"):
        convert(str(again), str(tmp_path / "out"), None, None, print)
    assert not (tmp_path / "out").exists()


def test_a_language_model_is_converted_only_as_it_is_told(tmp_path: Path) -> None:
    config = {**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"]}
    model = write_model(tmp_path / "model", config=config, weights=LANGUAGE_MODEL_WEIGHTS)
    with pytest.raises(ModelError, match=r"--family:\n  first-logit"):
        convert(str(model), str(tmp_path / "out"), None, None, print)


def test_nothing_that_exists_is_written_over_and_nothing_unfinished_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "converted"
    folder.mkdir()
    with pytest.raises(AssayError, match="exists already"):
        convert(PRINCIPLE, str(folder), None, None, print)
    with pytest.raises(AssayError, match="can't be written"):
        convert(PRINCIPLE, "/proc/converted", None, None, print)
    assert [path.name for path in tmp_path.iterdir()] == ["converted"]
