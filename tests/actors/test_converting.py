"""A head that is hidden in a language model, written out once: the same numbers, and the checkpoint says how it is read."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from actors.checkpoint import BUILT_IN, Checkpoint
from actors.converting import convert
from actors.errors import AssayError, ModelError
from actors.models import resolve
from actors.settings import EngineSettings, ModelSettings, ReadSettings, RenderSettings
from tests.actors.models.test_principle import TestTinyPrinciple as Judge
from tests.models import (
    FIRST_LOGIT,
    LANGUAGE_MODEL_WEIGHTS,
    PRINCIPLE,
    SCALAR,
    SCALAR_CONFIG,
    engine_of,
    write_model,
)

READ = ReadSettings(principles={"right": "correctness", "short": "brevity"})


def converted(model: str, folder: Path, family: str | None = None) -> Path:
    told: list[str] = []
    convert(model, str(folder), None, family, told.append)
    assert len(told) == 1
    return folder


def test_the_new_head_is_the_difference_of_the_rows(tmp_path: Path) -> None:
    folder = converted(PRINCIPLE, tmp_path / "converted")
    rows = load_file(BUILT_IN / "principle" / "model.safetensors")["lm_head.weight"].float()
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    assert torch.equal(model.score.weight, rows[7:8] - rows[6:7])
    assert Checkpoint.find(str(folder), None).tensors["score.weight"] == (1, rows.shape[1])


def test_the_first_logits_row_is_the_head_as_it_is(tmp_path: Path) -> None:
    folder = converted(FIRST_LOGIT, tmp_path / "converted")
    rows = load_file(BUILT_IN / "first-logit" / "model.safetensors")["lm_head.weight"].float()
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    assert torch.equal(model.score.weight, rows[:1])


def test_the_folder_says_its_family_itself(tmp_path: Path) -> None:
    folder = converted(PRINCIPLE, tmp_path / "converted")
    model = resolve(ModelSettings(model=str(folder)), RenderSettings(), tensor_parallel=160)
    assert (model.family_name, dict(model.overrides)) == ("principle", {})
    with pytest.raises(ModelError, match="was converted for --family principle, so --family scalar can't read it"):
        resolve(ModelSettings(model=str(folder), family="scalar"), RenderSettings())


def test_its_numbers_are_those_of_the_language_model(tmp_path: Path) -> None:
    folder = converted(PRINCIPLE, tmp_path / "converted")
    judge = Judge()
    expected = [judge.authors(judge.ids(one)) for one in judge.asked()[:20]]
    model = resolve(ModelSettings(model=str(folder), read=READ), RenderSettings())
    with engine_of(model, EngineSettings(tensor_parallel=2)) as engine:
        found = judge.scored(engine, judge.asked()[:20])
    for one, other in zip(expected, found, strict=True):
        assert other == pytest.approx(one, abs=1e-4)


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
    with pytest.raises(ModelError, match="--family: first-logit"):
        convert(str(model), str(tmp_path / "out"), None, None, print)


def test_nothing_that_exists_is_written_over_and_nothing_unfinished_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "converted"
    folder.mkdir()
    with pytest.raises(AssayError, match="exists already"):
        convert(PRINCIPLE, str(folder), None, None, print)
    with pytest.raises(AssayError, match="can't be written"):
        convert(PRINCIPLE, "/proc/converted", None, None, print)
    assert [path.name for path in tmp_path.iterdir()] == ["converted"]
