"""What people write in recipes: a bare value for a section, a setting beside its section, one value for a list."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.errors import SettingsError
from actors.settings.base import Settings
from actors.settings.replica import ModelSettings
from deploy.settings import EndpointSettings, SingleModelSettings
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.options import leaves, validate
from pipelines.settings.recipe import Recipe, read_recipe, write_recipe
from pipelines.settings.run_settings import CheckSettings, ScoreSettings
from tests.support.settings import steps

FULL = {"corpus": {"inputs": ["c.jsonl"]}, "output": "out", "model": {"model": "tiny-scalar"}}
REST = {"output": "out", "model": "tiny-scalar"}


def full_form(step: dict[str, Any], name: str = "score") -> dict[str, Any]:
    """A step with all its settings, as it lies beside results."""
    result: dict[str, Any] = validate(Recipe, {name: step}).steps[name].model_dump(mode="json")
    return result


@pytest.mark.parametrize(
    "step",
    [
        {**REST, "corpus": {"inputs": "c.jsonl"}},
        {**REST, "corpus": "c.jsonl"},
        {**REST, "corpus": ["c.jsonl"]},
        {**REST, "inputs": "c.jsonl"},
        {**REST, "inputs": ["c.jsonl"]},
        {"output": Path("out"), "model": {"model": "tiny-scalar"}, "inputs": Path("c.jsonl")},
    ],
    ids=repr,
)
def test_a_corpus_and_a_model_may_be_written_short(step: dict[str, Any]) -> None:
    assert full_form(step) == full_form(FULL)


def test_settings_may_stand_beside_their_section() -> None:
    judge = {"votes": 3, "rubric": {"prompt": "{{ response }}", "pattern": "([0-9])", "low": 0, "high": 9}}
    short = {**REST, "corpus": "c.jsonl", "turns": "all", "tensor_parallel": 2, "judge": judge, "reask": 1}
    full = {
        **FULL,
        "corpus": {"inputs": ["c.jsonl"], "turns": "all"},
        "model": {"model": "tiny-scalar", "judge": {**judge, "reask": 1}},
        "engine": {"tensor_parallel": 2},
    }
    assert full_form(short) == full_form(full)


def test_every_section_with_a_main_setting_takes_it_alone() -> None:
    short = {**REST, "inputs": "p.jsonl", "policy": "tiny-policy", "engine": "fake", "draw": 16}
    full = {
        **FULL,
        "corpus": {"inputs": ["p.jsonl"]},
        "policy": {"policy": "tiny-policy"},
        "engine": {"engine": "fake"},
        "draw": {"n": 16},
    }
    assert full_form(short, "sample") == full_form(full, "sample")


def test_the_models_of_an_ensemble_and_of_an_endpoint_are_ids_or_mappings() -> None:
    models = ["tiny-scalar", {"model": "tiny-attributes", "votes": 2}]
    ensemble = full_form({"inputs": "c", "output": "o", "models": models, "combination": "mean"}, "ensemble")
    assert [model["model"] for model in ensemble["models"]] == ["tiny-scalar", "tiny-attributes"]
    assert ensemble["models"][1]["judge"]["votes"] == 2
    assert ensemble["combination"]["combine"] == "mean"
    with pytest.raises(SettingsError, match=r"models\[0\]\.name = '1x': must be the letters A to Z, digits and _"):
        full_form({"inputs": "c", "output": "o", "models": [{"model": "a", "name": "1x"}, "b"]}, "ensemble")
    whole: list[Any] = ["a", ["a"], {"model": "a"}, [{"model": "a"}]]
    served = [validate(EndpointSettings, {"models": value, "allowed_hosts": "assay"}) for value in whole]
    assert all(settings == served[0] for settings in served)
    assert (served[0].models[0].model, served[0].access.allowed_hosts) == ("a", ("assay",))


def test_every_list_takes_one_text() -> None:
    folders, drawn = {"scored": "s", "output": "o"}, {**REST, "inputs": "c", "policy": "tiny-policy"}
    required: dict[str, dict[str, Any]] = {
        "choose": {**folders, "strategy": "best"},
        "pairs": folders,
        "export": {**folders, "trainer": "kto"},
        "sample": drawn,
        "refine": drawn,
        "score": {**REST, "inputs": "c"},
        "ensemble": {"inputs": "c", "output": "o", "models": ["a", "b"]},
        "cascade": {"inputs": "c", "output": "o", "models": ["a", "b"], "where": "reward > 0"},
        "evaluate": {"scored": "s"},
        "report": {"scored": "s"},
    }
    lists = [
        (step, leaf.name)
        for step, settings in steps().items()
        for leaf in leaves(settings)
        if "tuple" in str(leaf.field.annotation) and leaf.name != "models"
    ]
    assert len(lists) >= 8
    for step, name in lists:
        assert full_form({**required[step], name: "text"}, step) == full_form({**required[step], name: ["text"]}, step)


class _Address(os.PathLike[str]):
    """A path in a store, with a password in it."""

    def __fspath__(self) -> str:
        return "https://me:secret@store/x"


def test_a_path_object_holds_no_credential_either() -> None:
    with pytest.raises(SettingsError, match=r"^output holds an address with a user's name or password") as caught:
        validate(ScoreSettings, {**FULL, "output": _Address()})
    assert "secret" not in str(caught.value)


def test_a_setting_in_two_places_is_refused() -> None:
    for corpus in ("a.jsonl", {"inputs": "a.jsonl"}):
        with pytest.raises(SettingsError, match="score: inputs is given twice, beside `corpus` and in it"):
            validate(Recipe, {"score": {**REST, "corpus": corpus, "inputs": "b.jsonl"}})


def test_a_section_that_is_an_object_takes_no_setting_beside_it() -> None:
    with pytest.raises(SettingsError, match="votes isn't a setting"):
        validate(ScoreSettings, {**FULL, "model": ModelSettings(model="a"), "votes": 3})


def test_no_name_means_two_settings() -> None:
    all_settings: list[type[Settings]] = [*steps().values(), CheckSettings, PlanSettings, SingleModelSettings]
    for settings in all_settings:
        names = Counter(leaf.name for leaf in leaves(settings))
        assert names.most_common(1)[0][1] == 1


def test_the_full_form_is_written_and_read_again(tmp_path: Path) -> None:
    short = tmp_path / "short.yaml"
    short.write_text(f"score: {{inputs: c.jsonl, output: {tmp_path}, model: tiny-scalar, votes: 3}}\n")
    settings = read_recipe(str(short)).score
    assert settings is not None
    write_recipe(str(tmp_path), score=settings)
    written = yaml.safe_load((tmp_path / "recipe.yaml").read_text())["score"]
    assert (written["corpus"]["inputs"], written["model"]["model"]) == (["c.jsonl"], "tiny-scalar")
    assert written["model"]["judge"]["votes"] == 3
    assert not {"inputs", "votes"} & written.keys()
    assert read_recipe(str(tmp_path / "recipe.yaml")).score == settings
