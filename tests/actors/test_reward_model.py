"""What each family makes of a head's outputs, and which models it takes."""

import importlib
import json
import math
import pickle
import pkgutil
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import actors.models
from actors.checkpoint.checkpoint_files import BUILT_IN, Checkpoint
from actors.contracts.family import Family, KnownModel
from actors.engine.protocol import Task
from actors.errors import ModelError, SettingsError
from actors.records import Reading
from actors.reward_model import RewardModel, families, resolve_model
from actors.settings.replica import Dtype, ModelSettings, ReadSettings, RenderSettings
from tests.support.models import (
    ATTRIBUTES,
    ATTRIBUTES_CONFIG,
    ATTRIBUTES_WEIGHTS,
    LANGUAGE_MODEL_WEIGHTS,
    SCALAR,
    SCALAR_CONFIG,
    SCALAR_WEIGHTS,
    request,
    reward_model,
    user,
    write_model,
    write_weights,
)

NINE = (9.0, 8.0, 7.0, 6.0, 1.0, 0.1, 0.01, 0.001, 0.0001)
"""Outputs of the attribute head, each of which shows in a sum."""


def attributes() -> Family:
    return families()["attributes"]


def scalar() -> Family:
    return families()["scalar"]


def close(reading: Reading) -> Any:
    return pytest.approx(reading.reward, abs=1e-12)


# The contract of every family.


def test_every_file_is_a_family_and_no_two_have_one_name() -> None:
    files = [module.name for module in pkgutil.iter_modules(actors.models.__path__)]
    result = [importlib.import_module(f"actors.models.{file}").FAMILY for file in files]
    assert all(isinstance(family, Family) for family in result)
    assert sorted(family.name for family in result) == sorted(families())
    assert len(families()) == len(files)


def test_a_family_says_what_it_is_and_its_weights_name_its_outputs() -> None:
    for family in families().values():
        assert family.summary
        assert family.source
        assert family.models or family.name == "rubric", "which takes any chat model"
        assert family.asked
        assert family.read_at
        assert family.range
        assert family.outputs()
        assert set(family.card_weights()) <= set(family.outputs())
        assert family.weights(None) == family.card_weights()


def test_each_response_is_asked_about_with_its_context() -> None:
    cases: list[Family] = [family for family in families().values() if family.task.pools]
    for family in cases:
        query = request(user("Hi"), to=["A", "B"])
        questions = list(family.questions(query, range(2)))
        assert [question.response_positions for question in questions] == [(0,), (1,)]
        assert [question.messages[:-1] for question in questions] == [query.context] * 2
        assert [question.messages[-1].content for question in questions] == ["A", "B"]


# How the outputs are read.


def test_the_five_trained_attributes_are_read_and_the_others_are_not() -> None:
    assert attributes().read(NINE) == {
        "helpfulness": 1.0, "correctness": 0.1, "coherence": 0.01, "complexity": 0.001, "verbosity": 0.0001
    }  # fmt: skip


def test_the_reward_has_the_weights_of_the_model_card() -> None:
    reading = attributes().reading([[NINE]], attributes().weights(None))
    assert close(reading) == 0.3 * 1.0 + 0.74 * 0.1 + 0.46 * 0.01 + 0.47 * 0.001 - 0.33 * 0.0001
    assert reading.scores == attributes().read(NINE)


def test_the_reward_is_that_of_the_documentation_of_nvidia() -> None:
    values = (0.0, 0.0, 0.0, 0.0, 1.6171875, 1.6484375, 3.3125, 0.546875, 0.515625)
    assert attributes().reading([[values]], attributes().weights(None)).reward == pytest.approx(3.32, abs=0.005)


def test_attributes_in_another_order_give_another_reward() -> None:
    for index in range(8):
        swapped = [*NINE[:index], NINE[index + 1], NINE[index], *NINE[index + 2 :]]
        weights = attributes().weights(None)
        right, wrong = attributes().reading([[NINE]], weights), attributes().reading([[swapped]], weights)
        assert (right == wrong) == (index + 1 < 4)  # among the untrained ones it doesn't matter


def test_weights_of_ones_own_replace_the_cards() -> None:
    values = attributes().weights({"correctness": 2.0, "verbosity": -1.0})
    reading = attributes().reading([[NINE]], values)
    assert close(reading) == 2.0 * 0.1 - 0.0001
    assert set(reading.scores) == set(attributes().outputs())


def test_a_weight_of_an_unknown_output_is_refused() -> None:
    with pytest.raises(SettingsError, match="weights name humor, which attributes doesn't have; it has helpfulness, corr"):
        attributes().weights({"humor": 1.0, "helpfulness": 1.0})


@pytest.mark.parametrize("own", [{}, {"helpfulness": 0.0}])
def test_weights_that_make_every_reward_zero_are_refused(own: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="every reward would be 0"):
        attributes().weights(own)


@pytest.mark.parametrize("values", [NINE[:8], (*NINE, 0.0)])
def test_a_head_of_another_size_is_an_error(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="zip"):
        attributes().read(values)


def test_a_scalar_is_the_reward() -> None:
    assert scalar().reading([[(-1.25,)]], scalar().weights(None)) == Reading(-1.25, {"score": -1.25})
    with pytest.raises(ValueError, match="values to unpack"):
        scalar().read((1.0, 2.0))


def test_all_nine_are_read_on_request() -> None:
    nine = attributes().reading_by(ReadSettings(all_outputs=True))
    assert list(nine.read(NINE).values()) == list(NINE)
    assert nine.outputs()[:4] == ("quality", "toxicity", "humor", "creativity")
    assert nine.reading([[NINE]], nine.weights(None)).reward == attributes().reading([[NINE]], nine.weights(None)).reward


def test_steerlm_rounds_half_to_even_within_its_labels() -> None:
    cases: list[tuple[float, int]] = [
        (-0.7, 0),
        (0.5, 0),
        (0.51, 1),
        (1.5, 2),
        (2.5, 2),
        (3.5, 4),
        (4.4, 4),
        (9.0, 4),
        (math.inf, 4),
    ]
    for raw, rounded in cases:
        family = attributes().reading_by(ReadSettings(steerlm_rounding=True))
        assert set(family.read((raw,) * 9).values()) == {float(rounded)}
        assert family.reading([[(raw,) * 9]], {"helpfulness": 0.3}).reward == pytest.approx(0.3 * rounded)


def test_rounding_leaves_no_number_where_there_was_none() -> None:
    family = attributes().reading_by(ReadSettings(steerlm_rounding=True))
    assert not family.reading([[(math.nan,) * 9]], family.weights(None)).finite


def test_a_way_of_another_family_is_refused() -> None:
    with pytest.raises(SettingsError, match="--steerlm-rounding: the family scalar doesn't take these options"):
        resolve_model(ModelSettings(model=SCALAR, read=ReadSettings(steerlm_rounding=True)), RenderSettings())


# Which model a family takes.


def test_the_built_in_models_are_found() -> None:
    attribute_model, scalar_model = reward_model(ATTRIBUTES), reward_model(SCALAR)
    assert (attribute_model.family.name, attribute_model.labels) == ("attributes", 9)
    assert (scalar_model.family.name, scalar_model.labels) == ("scalar", 1)
    for model in (attribute_model, scalar_model):
        assert (model.dtype, model.max_model_len, model.revision) == ("float32", 8192, None)
        assert model.weights == model.family.card_weights()


def test_a_reward_model_travels() -> None:
    model = reward_model(ATTRIBUTES)
    copy = pickle.loads(pickle.dumps(model))
    assert copy == model
    assert copy.family.name == model.family.name


def test_settings_win_over_the_checkpoint(tmp_path: Path) -> None:
    path = str(write_model(tmp_path / "model"))
    as_it_is = resolve_model(ModelSettings(model=path), RenderSettings())
    assert (as_it_is.dtype, as_it_is.max_model_len) == ("bfloat16", 8192)
    reward_model = resolve_model(
        ModelSettings(model=path, dtype=Dtype.FLOAT32, weights={"score": -1.0}), RenderSettings(max_model_len=100)
    )
    assert (reward_model.dtype, reward_model.max_model_len, reward_model.weights) == ("float32", 100, {"score": -1.0})


@pytest.mark.parametrize(
    ("config", "task"),
    [
        (SCALAR_CONFIG, Task.TOKEN_CLASSIFY),
        ({**SCALAR_CONFIG, "is_causal": False}, Task.CLASSIFY),
        ({**SCALAR_CONFIG, "architectures": ["ModernBertForSequenceClassification"]}, Task.CLASSIFY),
        (ATTRIBUTES_CONFIG, Task.CLASSIFY),
    ],
    ids=["scalar", "made to look both ways", "encoder", "attributes"],
)
def test_every_turn_is_read_in_one_pass_where_the_numbers_are_the_same(
    tmp_path: Path, config: Mapping[str, Any], task: Task
) -> None:
    weights = ATTRIBUTES_WEIGHTS if config is ATTRIBUTES_CONFIG else SCALAR_WEIGHTS
    path = write_model(tmp_path / "model", config=config, weights=weights)
    assert reward_model(path, every_turn=True).task is task
    assert reward_model(path).task is Task.CLASSIFY


def refusal(folder: Path, config: Mapping[str, Any], weights: Mapping[str, int] = SCALAR_WEIGHTS) -> str:
    """Why a model with such a config isn't taken."""
    path = write_model(folder / "model", config=config, weights=weights)
    with pytest.raises(ModelError) as refused:
        reward_model(path)
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"architectures": ["BertModel"]}, "a BertModel with 1 labels"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "a LlamaForSequenceClassification with 3 labels"),
        ({"num_labels": 4}, "a LlamaForSequenceClassification with 4 labels"),
        ({"num_labels": 6}, "a LlamaForSequenceClassification with 6 labels"),
        ({"id2label": ATTRIBUTES_CONFIG["id2label"]}, "a LlamaForSequenceClassification with 9 labels"),
        ({"architectures": None}, "a model without architectures with 1 labels"),
    ],
)
def test_what_no_family_reads_is_refused_and_the_families_are_named(
    tmp_path: Path, change: Mapping[str, Any], found: str
) -> None:
    message = refusal(tmp_path, {**SCALAR_CONFIG, **change})
    assert f"{found}, which no family of reward models here reads" in message
    assert all(f"{family.name}: {family.summary}" in message for family in families().values())


@pytest.mark.parametrize(
    ("change", "found", "family"),
    [
        ({"id2label": None}, "a LlamaForSequenceClassification with 2 labels", "mean-variance"),
    ],
)
def test_a_classifier_is_never_guessed_to_be_a_reward_model(
    tmp_path: Path, change: Mapping[str, Any], found: str, family: str
) -> None:
    message = refusal(tmp_path, {**SCALAR_CONFIG, **change})
    assert f"{found}. That alone doesn't tell whether it is a reward model" in message
    assert f"--family: {family}: " in message
    named = resolve_model(ModelSettings(model=str(tmp_path / "model"), family=family), RenderSettings())
    assert (named.family_name, named.labels) == (family, int(change.get("num_labels", 2)))


def test_a_model_that_two_families_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(attributes()), "recognises", lambda self, checkpoint: True)
    message = refusal(tmp_path, SCALAR_CONFIG)
    assert "that could be any of attributes: five" in message
    assert "; scalar: one logit" in message
    assert message.endswith("say which with --family")


def test_a_language_model_is_never_guessed_to_be_a_reward_model(tmp_path: Path) -> None:
    config = {**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"]}
    message = refusal(tmp_path, config, LANGUAGE_MODEL_WEIGHTS)
    assert "That alone doesn't tell whether it is a reward model, nor how it is read" in message
    assert "--family: first-logit: the logit of token id 0" in message
    assert "attributes:" not in message, "only those that could read it are named"
    named = resolve_model(ModelSettings(model=str(tmp_path / "model"), family="first-logit"), RenderSettings())
    assert (named.family_name, named.labels) == ("first-logit", 1)


@pytest.mark.parametrize(
    ("name", "family"), [("internlm2", "internlm2"), ("math-rm", "math-reward"), ("math-prm", "math-process")]
)
def test_a_class_that_models_of_other_cards_share_is_no_family(tmp_path: Path, name: str, family: str) -> None:
    foreign, names = tmp_path / "POLAR-7B", tmp_path / f"tiny-{name}"
    for folder in (foreign, names):
        shutil.copytree(BUILT_IN / name, folder)
    with pytest.raises(ModelError, match=rf"nor how it is read: if it is one, say which with --family: {family}: "):
        reward_model(foreign)
    assert resolve_model(ModelSettings(model=str(foreign), family=family), RenderSettings()).family_name == family
    assert reward_model(names).family_name == reward_model(f"tiny-{name}").family_name == family


def test_a_family_that_is_named_must_be_there_and_fit(tmp_path: Path) -> None:
    names = ", ".join(sorted(families()))
    with pytest.raises(ModelError, match=f"--family nonsense isn't a family that Assay knows; there are {names}"):
        resolve_model(ModelSettings(model=SCALAR, family="nonsense"), RenderSettings())
    with pytest.raises(ModelError, match="a LlamaForSequenceClassification with 1 labels, which --family attributes can't"):
        resolve_model(ModelSettings(model=SCALAR, family="attributes"), RenderSettings())
    assert resolve_model(ModelSettings(model=SCALAR, family="scalar"), RenderSettings()).family_name == "scalar"


def test_published_models_are_known_by_their_id() -> None:
    cases: list[tuple[str, str]] = [
        ("nvidia/Nemotron-4-340B-Reward", "attributes"),
        ("nvidia/Llama-3.1-Nemotron-70B-Reward-HF", "first-logit"),
        ("nvidia/llama-3.3-nemotron-70b-reward", "first-logit"),
        ("nvidia/Llama-3.3-Nemotron-70B-Reward-Multilingual", "first-logit"),
        ("nvidia/Llama-3.3-Nemotron-70B-Select", "first-logit"),
        ("Skywork/Skywork-Reward-Gemma-2-27B", "scalar"),
        ("Skywork/Skywork-Reward-Gemma-2-27B-v0.2", "scalar"),
        ("Skywork/Skywork-Reward-Llama-3.1-8B", "scalar"),
        ("Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M", "scalar"),
        ("Skywork/Skywork-Reward-V2-Qwen3-8B", "scalar"),
        ("nvidia/Qwen-3-Nemotron-32B-Reward", "scalar"),
        ("nvidia/Llama-3.3-Nemotron-70B-Reward-Principle", "principle"),
        ("internlm/internlm2-20b-reward", "internlm2"),
        ("Qwen/Qwen2.5-Math-RM-72B", "math-reward"),
        ("Qwen/Qwen2.5-Math-PRM-7B", "math-process"),
        ("Llama-3.1-Nemotron-70B-Reward", "first-logit"),
        ("Skywork-Reward-Gemma-2-27B", "scalar"),
    ]
    for model, family in cases:
        assert [family.name for family in families().values() if family.knows(model)] == [family]


def test_no_id_is_known_to_two_families() -> None:
    ids = [model.id for family in families().values() for model in family.models]
    assert len(set(ids)) == len(ids)
    for name in ids:
        assert len([family for family in families().values() if family.knows(name)]) == 1


@pytest.mark.parametrize("config", [SCALAR_CONFIG, ATTRIBUTES_CONFIG])
def test_a_model_without_its_head_is_refused(tmp_path: Path, config: Mapping[str, Any]) -> None:
    message = refusal(tmp_path, config, {"model.embed_tokens.weight": 10, "score.bias": 9})
    assert "has no score.weight" in message
    assert "random numbers" in message


def test_the_rows_of_a_quantised_output_embedding_are_no_head(tmp_path: Path) -> None:
    config = {**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"]}
    write_model(tmp_path / "model", config=config, weights={"lm_head.qweight": 10})
    settings = ModelSettings(model=str(tmp_path / "model"), family="first-logit")
    with pytest.raises(ModelError, match=r"has no lm_head\.weight, whose rows are the reward head"):
        resolve_model(settings, RenderSettings())


def test_an_attribute_head_without_its_bias_is_refused(tmp_path: Path) -> None:
    weights = {name: size for name, size in ATTRIBUTES_WEIGHTS.items() if name != "score.bias"}
    message = refusal(tmp_path, ATTRIBUTES_CONFIG, weights)
    assert "has no score.bias" in message
    assert "Convert the checkpoint again" in message


@pytest.mark.parametrize(("head", "bias"), [((9, 64), (9,)), ((5, 128), (9,)), ((9, 128), (1,))])
def test_an_attribute_head_of_another_shape_is_refused(tmp_path: Path, head: tuple[int, int], bias: tuple[int]) -> None:
    path = write_model(tmp_path / "model", config={**ATTRIBUTES_CONFIG, "hidden_size": 128}, weights=ATTRIBUTES_WEIGHTS)
    write_weights(path / "model.safetensors", {"score.weight": head, "score.bias": bias})
    with pytest.raises(ModelError, match=r"score\.(weight|bias) is \[.*Convert the checkpoint again, with all of rm_head"):
        reward_model(path)
    write_weights(path / "model.safetensors", {"score.weight": (9, 128), "score.bias": (9,)})
    assert reward_model(path).labels == 9


def test_a_published_model_isnt_read_as_another_family() -> None:
    with pytest.raises(ModelError, match="tiny-principle is published as --family principle, and would be misread by"):
        resolve_model(ModelSettings(model="tiny-principle", family="first-logit"), RenderSettings())


def test_a_copy_in_a_folder_of_its_name_is_known(tmp_path: Path) -> None:
    for name in ("Skywork-Reward-V2-Llama-3.1-8B", "my-own-model"):
        write_model(tmp_path / name)
    names, unknown = (reward_model(tmp_path / name) for name in ("Skywork-Reward-V2-Llama-3.1-8B", "my-own-model"))
    assert scalar().knows(names.known_as) == scalar().knows("Skywork/Skywork-Reward-V2-Llama-3.1-8B")
    assert scalar().knows(unknown.known_as) is None
    assert scalar().knows("somebody/Skywork-Reward-V2-Llama-3.1-8B") is None, "another owner's may be another model"


def test_what_an_index_names_is_there_even_if_its_file_isnt_yet(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", weights={"model.embed_tokens.weight": 10})
    where = {"model.embed_tokens.weight": "model.safetensors", "score.weight": "model-2.safetensors"}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    assert reward_model(path).family_name == "scalar"
    assert Checkpoint.find(str(path), None).tensors["score.weight"] is None
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"model.embed_tokens.weight": "a"}}))
    with pytest.raises(ModelError, match=r"has no score\.weight"):
        reward_model(path)
    (path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ModelError, match=r"index\.json can't be read"):
        reward_model(path)


def test_another_config_is_another_model(tmp_path: Path) -> None:
    item = reward_model(write_model(tmp_path / "a", config=SCALAR_CONFIG))
    other = reward_model(write_model(tmp_path / "b", config={**SCALAR_CONFIG, "rope_theta": 123.0}))
    assert item.hashes["config"] != other.hashes["config"]


def test_prompts_are_as_long_as_the_model_was_trained_on_unless_one_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write_model(tmp_path / "model"))
    names = KnownModel(path, "", context=4096)
    monkeypatch.setattr(type(scalar()), "models", (names,))
    assert reward_model(path).max_model_len == 4096
    assert reward_model(path, max_model_len=8192).max_model_len == 8192
    monkeypatch.setattr(type(scalar()), "models", (replace(names, context=16384),))
    assert reward_model(path).max_model_len == 8192, "never more than the checkpoint takes"


@pytest.mark.parametrize(
    ("config", "causal"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, True),
        ({"architectures": ["LlamaForCausalLM"], "is_causal": False}, False),
        ({"architectures": ["LlamaForSequenceClassification"]}, True),
        ({"architectures": ["BertForSequenceClassification"]}, False),
    ],
)
def test_what_looks_both_ways_is_told_by_its_config(tmp_path: Path, config: Mapping[str, Any], causal: bool) -> None:
    path = write_model(tmp_path / "model", config={**SCALAR_CONFIG, **config})
    assert Checkpoint.find(str(path), None).causal is causal


def test_a_length_beyond_the_models_own_is_refused() -> None:
    with pytest.raises(ModelError, match="--max-model-len 8193 is more than tiny-scalar takes"):
        reward_model(SCALAR, max_model_len=8193)
    assert reward_model(SCALAR, max_model_len=8192).max_model_len == 8192


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096},
        {"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096},
        {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 4096}},
        {
            "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 131_072},
            "original_max_position_embeddings": 4096,
        },
    ],
)
def test_longrope_is_read_with_its_short_factors_alone(tmp_path: Path, config: Mapping[str, Any]) -> None:
    """With a longer limit the engine takes the long ones for every prompt, transformers for long prompts alone."""
    path = write_model(tmp_path / "model", config={**SCALAR_CONFIG, "max_position_embeddings": 131_072, **config})
    assert reward_model(path).max_model_len == 4096
    with pytest.raises(ModelError, match=r"--max-model-len 8192 is more than .* takes \(4096\)"):
        reward_model(path, max_model_len=8192)


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": None, "original_max_position_embeddings": 4096},
        {"rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 4096}},
        {"rope_scaling": {"rope_type": "longrope"}},
    ],
)
def test_other_scaled_positions_are_read_to_their_end(tmp_path: Path, config: Mapping[str, Any]) -> None:
    assert reward_model(write_model(tmp_path / "model", config={**SCALAR_CONFIG, **config})).max_model_len == 8192


def test_a_length_that_the_config_doesnt_say_is_asked_for(tmp_path: Path) -> None:
    config = {key: value for key, value in SCALAR_CONFIG.items() if key != "max_position_embeddings"}
    assert "give --max-model-len" in refusal(tmp_path, config)
    assert reward_model(tmp_path / "model", max_model_len=100).max_model_len == 100


def test_a_checkpoint_is_read_as_transformers_writes_it(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", config=ATTRIBUTES_CONFIG, weights=ATTRIBUTES_WEIGHTS)
    checkpoint = Checkpoint.find(str(path), None)
    assert set(checkpoint.tensors) == {"model.embed_tokens.weight", "score.bias", "score.weight"}
    model: RewardModel = reward_model(path)
    assert (model.family_name, model.labels) == ("attributes", 9)
