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
from actors.contracts.family import Family
from actors.contracts.known_model import KnownModel
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


def attributes(**read: Any) -> Family:
    return families()["attributes"].reading_by(ReadSettings(**read))


def scalar() -> Family:
    return families()["scalar"]


def named(model: str | Path, family: str) -> RewardModel:
    return resolve_model(ModelSettings(model=str(model), family=family), RenderSettings())


# The contract of every family.


def test_every_file_is_a_family_and_no_two_have_one_name() -> None:
    files = [module.name for module in pkgutil.iter_modules(actors.models.__path__)]
    defined = [importlib.import_module(f"actors.models.{file}").FAMILY for file in files]
    result = [family for entry in defined for family in (entry if isinstance(entry, tuple) else (entry,))]
    assert all(isinstance(family, Family) for family in result)
    assert sorted(family.name for family in result) == sorted(families())


def test_a_family_says_what_it_is_and_its_weights_name_its_outputs() -> None:
    for family in families().values():
        assert all((family.summary, family.source, family.prompt_form, family.read_at, family.range, family.outputs()))
        assert family.models or family.any_model, family.name
        assert set(family.card_weights()) <= set(family.outputs())
        assert family.weights(None) == family.card_weights()


def test_each_response_is_asked_about_with_its_context() -> None:
    query = request(user("Hi"), to=["A", "B"])
    for family in (family for family in families().values() if family.task.pools):
        questions = list(family.questions(query, range(2)))
        assert [question.response_positions for question in questions] == [(0,), (1,)]
        assert [question.messages[:-1] for question in questions] == [query.context] * 2
        assert [question.messages[-1].content for question in questions] == ["A", "B"]


# How the outputs are read.


def test_the_reward_has_the_weights_of_the_model_card_or_ones_own() -> None:
    scores = {"helpfulness": 1.0, "correctness": 0.1, "coherence": 0.01, "complexity": 0.001, "verbosity": 0.0001}
    reading = attributes().reading([[NINE]], attributes().weights(None))
    reward = 0.3 * 1.0 + 0.74 * 0.1 + 0.46 * 0.01 + 0.47 * 0.001 - 0.33 * 0.0001
    weighted = attributes().reading([[NINE]], attributes().weights({"correctness": 2.0, "verbosity": -1.0}))
    assert (reading.reward, weighted.reward) == pytest.approx((reward, 2.0 * 0.1 - 0.0001), abs=1e-12)
    assert reading.scores == weighted.scores == scores


def test_the_reward_is_that_of_the_documentation_of_nvidia() -> None:
    values = (0.0, 0.0, 0.0, 0.0, 1.6171875, 1.6484375, 3.3125, 0.546875, 0.515625)
    assert attributes().reading([[values]], attributes().weights(None)).reward == pytest.approx(3.32, abs=0.005)


def test_weights_of_unknown_outputs_or_that_make_every_reward_zero_are_refused() -> None:
    with pytest.raises(SettingsError, match="weights name humor, which attributes doesn't have; it has helpfulness, corr"):
        attributes().weights({"humor": 1.0, "helpfulness": 1.0})
    for weights in ({}, {"helpfulness": 0.0}):
        with pytest.raises(SettingsError, match="every reward would be 0"):
            attributes().weights(weights)


def test_a_head_of_another_size_is_an_error() -> None:
    for values in (NINE[:8], (*NINE, 0.0)):
        with pytest.raises(ValueError, match="zip"):
            attributes().read(values)


def test_a_scalar_is_the_reward() -> None:
    assert scalar().reading([[(-1.25,)]], scalar().weights(None)) == Reading(-1.25, {"score": -1.25})
    with pytest.raises(ValueError, match="values to unpack"):
        scalar().read((1.0, 2.0))


def test_all_nine_are_read_on_request() -> None:
    nine = attributes(all_outputs=True)
    assert list(nine.read(NINE).values()) == list(NINE)
    assert nine.outputs()[:4] == ("quality", "toxicity", "humor", "creativity")
    assert nine.reading([[NINE]], nine.weights(None)).reward == attributes().reading([[NINE]], nine.weights(None)).reward


def test_steerlm_rounds_half_to_even_within_its_labels() -> None:
    family = attributes(steerlm_rounding=True)
    cases = {-0.7: 0, 0.5: 0, 0.51: 1, 1.5: 2, 2.5: 2, 3.5: 4, 4.4: 4, 9.0: 4, math.inf: 4}
    for raw, rounded in cases.items():
        assert set(family.read((raw,) * 9).values()) == {float(rounded)}
        assert family.reading([[(raw,) * 9]], {"helpfulness": 0.3}).reward == pytest.approx(0.3 * rounded)
    assert not family.reading([[(math.nan,) * 9]], family.weights(None)).finite


def test_a_way_of_another_family_is_refused() -> None:
    with pytest.raises(SettingsError, match="steerlm_rounding: the family scalar doesn't take these settings"):
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
    assert model.family is model.family, "it is made once"
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


def test_what_no_family_reads_is_refused_and_the_families_are_named(tmp_path: Path) -> None:
    cases: list[tuple[Mapping[str, Any], str]] = [
        ({"architectures": ["BertModel"]}, "a BertModel with 1 labels"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "a LlamaForSequenceClassification with 3 labels"),
        ({"num_labels": 4}, "a LlamaForSequenceClassification with 4 labels"),
        ({"id2label": ATTRIBUTES_CONFIG["id2label"]}, "a LlamaForSequenceClassification with 9 labels"),
        ({"architectures": None}, "a model without architectures with 1 labels"),
    ]
    for number, (change, description) in enumerate(cases):
        message = refusal(tmp_path / str(number), {**SCALAR_CONFIG, **change})
        assert message.endswith(f"{description}, which no family of reward models here reads; `assay models` lists them")


def test_a_classifier_is_never_guessed_to_be_a_reward_model(tmp_path: Path) -> None:
    message = refusal(tmp_path, {**SCALAR_CONFIG, "id2label": None})
    assert "a LlamaForSequenceClassification with 2 labels (config.json says no number, which means 2" in message
    assert "That alone doesn't tell whether it is a reward model" in message
    assert "--family:\n  mean-variance: " in message
    model = named(tmp_path / "model", "mean-variance")
    assert (model.family_name, model.labels) == ("mean-variance", 2)


def test_a_model_that_two_families_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(attributes()), "recognises", lambda self, checkpoint: True)
    message = refusal(tmp_path, SCALAR_CONFIG)
    assert "which several families read. Say which with --family:\n  attributes: five" in message
    assert "\n  scalar: one logit" in message


def test_a_language_model_is_never_guessed_to_be_a_reward_model(tmp_path: Path) -> None:
    config = {**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"]}
    message = refusal(tmp_path, config, LANGUAGE_MODEL_WEIGHTS)
    assert "That alone doesn't tell whether it is a reward model, nor how it is read" in message
    assert "a LlamaForCausalLM. That alone" in message, "its config.json says no number of labels"
    first, second, third, *_, last = message.splitlines()[1:]
    likely = [line.strip().partition(":")[0] for line in (first, second, third)]
    assert likely == ["first-logit", "principle", "rubric"], "those of its architecture, then what any chat model can be"
    assert (len(message.splitlines()), last.endswith("`assay models`")) == (7, True)
    assert "attributes:" not in message, "only those that could read it are named"
    model = named(tmp_path / "model", "first-logit")
    assert (model.family_name, model.labels) == ("first-logit", 1)


@pytest.mark.parametrize(("name", "family"), [("math-rm", "math-reward"), ("math-prm", "math-process")])
def test_a_class_that_models_of_other_cards_share_is_no_family(tmp_path: Path, name: str, family: str) -> None:
    foreign, copied = tmp_path / "some-model", tmp_path / f"tiny-{name}"
    for folder in (foreign, copied):
        shutil.copytree(BUILT_IN / name, folder)
    with pytest.raises(ModelError, match=rf"If it is one, say which with --family:\n  {family}: "):
        reward_model(foreign)
    assert named(foreign, family).family_name == family
    assert reward_model(copied).family_name == reward_model(f"tiny-{name}").family_name == family


def test_a_family_that_is_named_must_be_there_and_fit() -> None:
    names = ", ".join(sorted(families()))
    with pytest.raises(ModelError, match=f"--family nonsense isn't a family that Assay knows; there are {names}"):
        named(SCALAR, "nonsense")
    with pytest.raises(ModelError, match="a LlamaForSequenceClassification with 1 labels, which --family attributes can't"):
        named(SCALAR, "attributes")
    with pytest.raises(ModelError, match="tiny-principle is published as --family principle, and would be misread by"):
        named("tiny-principle", "first-logit")
    assert named(SCALAR, "scalar").family_name == "scalar"


def test_published_models_are_known_by_their_id() -> None:
    cases = {
        "nvidia/Nemotron-4-340B-Reward": "attributes",
        "nvidia/Llama-3.1-Nemotron-70B-Reward-HF": "first-logit",
        "nvidia/llama-3.3-nemotron-70b-reward": "first-logit",
        "nvidia/Llama-3.3-Nemotron-70B-Select": "first-logit",
        "Skywork/Skywork-Reward-Gemma-2-27B-v0.2": "scalar",
        "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M": "scalar",
        "nvidia/Qwen-3-Nemotron-32B-Reward": "scalar",
        "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle": "principle",
        "internlm/internlm2-20b-reward": "internlm2",
        "internlm/POLAR-7B": "polar",
        "internlm/POLAR-1_8B-Base": "polar",
        "Qwen/Qwen2.5-Math-RM-72B": "math-reward",
        "Qwen/Qwen2.5-Math-PRM-7B": "math-process",
        "Llama-3.1-Nemotron-70B-Reward": "first-logit",
        "Skywork-Reward-Gemma-2-27B": "scalar",
    }
    for model, name in cases.items():
        assert [family.name for family in families().values() if family.knows(model)] == [name]


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


@pytest.mark.parametrize("name", ["value_head.weight", "v_head.summary.weight", "classifier.weight"])
def test_a_head_by_another_name_is_named(tmp_path: Path, name: str) -> None:
    weights = {"model.embed_tokens.weight": 10, name: 8}
    assert f"It has {name}, and scalar reads no head by that name" in refusal(tmp_path / "scalar", SCALAR_CONFIG, weights)
    marked = {**SCALAR_CONFIG, "normalize_reward": False}
    assert f"has no score., of the head of openrlhf. It has {name}" in refusal(tmp_path / "openrlhf", marked, weights)


def test_a_language_model_with_a_value_head_beside_it_is_told(tmp_path: Path) -> None:
    path = write_model(
        tmp_path / "model", config={**SCALAR_CONFIG, "architectures": ["LlamaForCausalLM"]}, weights=LANGUAGE_MODEL_WEIGHTS
    )
    write_weights(path / "value_head.safetensors", {"v_head.summary.weight": (1, 8)})
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": "model.safetensors"}}))
    with pytest.raises(ModelError, match=r"Its value head \(value_head\.safetensors\) is read by none of"):
        reward_model(path)


def test_a_head_of_one_row_has_one_label_though_its_config_says_none(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", config={**SCALAR_CONFIG, "id2label": None})
    for shape, family in (((1, 8), "scalar"), ((2, 8), None), ((8,), None)):
        write_weights(path / "model.safetensors", {"model.embed_tokens.weight": (4, 8), "score.weight": shape})
        if family is None:
            with pytest.raises(ModelError, match='if its head has one output, add "num_labels": 1'):
                reward_model(path)
        else:
            model = reward_model(path)
            assert (model.family_name, model.labels, model.overrides) == (family, 1, {"num_labels": 1})


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


def test_an_attribute_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", config={**ATTRIBUTES_CONFIG, "hidden_size": 128}, weights=ATTRIBUTES_WEIGHTS)
    for head, bias in (((9, 64), (9,)), ((5, 128), (9,)), ((9, 128), (1,))):
        write_weights(path / "model.safetensors", {"score.weight": head, "score.bias": bias})
        with pytest.raises(ModelError, match=r"score\.(weight|bias) is \[.*Convert the checkpoint again, with all of rm_he"):
            reward_model(path)
    write_weights(path / "model.safetensors", {"score.weight": (9, 128), "score.bias": (9,)})
    assert reward_model(path).labels == 9


def test_a_copy_in_a_folder_of_its_name_is_known(tmp_path: Path) -> None:
    name = "Skywork-Reward-V2-Llama-3.1-8B"
    copied, unknown = (reward_model(write_model(tmp_path / folder)) for folder in (name, "my-own-model"))
    assert scalar().knows(copied.known_as) == scalar().knows(f"Skywork/{name}")
    assert scalar().knows(unknown.known_as) is None
    assert scalar().knows(f"somebody/{name}") is None, "another owner's may be another model"


def test_a_snapshot_in_the_hubs_cache_is_known_by_the_id_in_its_path(tmp_path: Path) -> None:
    name, cache = "Skywork-Reward-V2-Llama-3.1-8B", tmp_path / "hub"
    ours, foreign = (
        reward_model(write_model(cache / f"models--{owner}--{name}" / "snapshots" / "0f2a"))
        for owner in ("Skywork", "somebody")
    )
    assert scalar().knows(ours.known_as) == scalar().knows(f"{ours.known_as}/") == scalar().knows(f"Skywork/{name}")
    assert scalar().knows(foreign.known_as) is None, "another owner's may be another model"


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


def test_a_language_model_beside_an_image_model_is_read_by_its_own_config(tmp_path: Path) -> None:
    """As transformers writes a Qwen3_5ForSequenceClassification: labels and length under `text_config`."""
    whole = {"architectures": ["Qwen3_5ForSequenceClassification"], "model_type": "qwen3_5", "dtype": "bfloat16"}
    text = {"model_type": "qwen3_5_text", "max_position_embeddings": 4096, "vocab_size": 320, "pad_token_id": 7}
    cases: list[tuple[Mapping[str, Any], Mapping[str, Any], int]] = [
        ({}, {"id2label": {"0": "LABEL_0"}}, 1),
        ({}, {}, 2),
        ({"id2label": {"0": "LABEL_0"}}, {}, 1),
        ({"num_labels": 5}, {"id2label": {"0": "LABEL_0"}}, 5),
        # What transformers writes of a config whose text alone has a head, and what vLLM makes of it.
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, {"num_labels": 1}, 1),
    ]
    for number, (top, below, labels) in enumerate(cases):
        path = write_model(tmp_path / str(number), config={**whole, **top, "text_config": {**text, **below}})
        checkpoint = Checkpoint.find(str(path), None)
        assert (checkpoint.labels, checkpoint.max_model_len, checkpoint.pad_token_id) == (labels, 4096, 7)
        assert checkpoint.causal
    assert reward_model(tmp_path / "0").family_name == "scalar"


def test_what_looks_both_ways_is_told_by_its_config(tmp_path: Path) -> None:
    cases: list[tuple[Mapping[str, Any], bool]] = [
        ({"architectures": ["LlamaForCausalLM"]}, True),
        ({"architectures": ["LlamaForCausalLM"], "is_causal": False}, False),
        ({"architectures": ["LlamaForSequenceClassification"]}, True),
        ({"architectures": ["BertForSequenceClassification"]}, False),
        ({"architectures": ["Gemma3TextForSequenceClassification"]}, True),
        ({"architectures": ["Gemma3TextForSequenceClassification"], "use_bidirectional_attention": True}, False),
    ]
    for number, (config, causal) in enumerate(cases):
        path = write_model(tmp_path / str(number), config={**SCALAR_CONFIG, **config})
        assert Checkpoint.find(str(path), None).causal is causal


def test_a_length_beyond_the_models_own_is_refused() -> None:
    with pytest.raises(ModelError, match="--set max_model_len=8193 is more than tiny-scalar takes"):
        reward_model(SCALAR, max_model_len=8193)
    assert reward_model(SCALAR, max_model_len=8192).max_model_len == 8192


ORIGINAL = "original_max_position_embeddings"


def test_longrope_is_read_with_its_short_factors_alone(tmp_path: Path) -> None:
    """With a longer limit the engine takes the long ones for every prompt, transformers for long prompts alone."""
    cases: list[tuple[Mapping[str, Any], int]] = [
        ({"rope_scaling": {"type": "longrope"}, ORIGINAL: 4096}, 4096),
        ({"rope_scaling": {"type": "su"}, ORIGINAL: 4096}, 4096),
        ({"rope_parameters": {"rope_type": "longrope", ORIGINAL: 4096}}, 4096),
        ({"rope_parameters": {"rope_type": "longrope", ORIGINAL: 131_072}, ORIGINAL: 4096}, 4096),
        ({"rope_scaling": None, ORIGINAL: 4096}, 131_072),
        ({"rope_scaling": {"rope_type": "llama3", ORIGINAL: 4096}}, 131_072),
        ({"rope_scaling": {"rope_type": "longrope"}}, 131_072),
    ]
    for number, (config, longest) in enumerate(cases):
        config = {**SCALAR_CONFIG, "max_position_embeddings": 131_072, **config}
        path = write_model(tmp_path / str(number), config=config)
        assert reward_model(path).max_model_len == longest
        with pytest.raises(ModelError, match=rf"--set max_model_len={longest + 1} is more than .* takes \({longest}\)"):
            reward_model(path, max_model_len=longest + 1)


def test_a_length_that_the_config_doesnt_say_is_asked_for(tmp_path: Path) -> None:
    config = {key: value for key, value in SCALAR_CONFIG.items() if key != "max_position_embeddings"}
    assert "give --set max_model_len=..." in refusal(tmp_path, config)
    assert reward_model(tmp_path / "model", max_model_len=100).max_model_len == 100


def test_a_checkpoint_is_read_as_transformers_writes_it(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", config=ATTRIBUTES_CONFIG, weights=ATTRIBUTES_WEIGHTS)
    checkpoint = Checkpoint.find(str(path), None)
    assert set(checkpoint.tensors) == {"model.embed_tokens.weight", "score.bias", "score.weight"}
    model: RewardModel = reward_model(path)
    assert (model.family_name, model.labels) == ("attributes", 9)


def test_a_worker_with_another_version_of_a_plugin_or_without_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = dict(families())
    monkeypatch.setattr(families(), "_loaded", (by_name, {"exact-match": "acme 0.1"}))
    model = resolve_model(ModelSettings(model="exact-match"), RenderSettings())
    assert model.family.name == "exact-match"
    sent = pickle.dumps(model)
    assert pickle.loads(sent).family.name == "exact-match"
    for plugins, names, says in (
        ({"exact-match": "acme 0.2"}, by_name, "of acme 0.2 on"),
        ({}, by_name, "of Assay itself on"),
        ({}, {}, "not installed on"),
    ):
        monkeypatch.setattr(families(), "_loaded", (names, plugins))
        with pytest.raises(
            SettingsError, match=f"is of acme 0.1 where the run began, and {says} .*: install acme 0.1 on every"
        ):
            pickle.loads(sent).family  # noqa: B018
