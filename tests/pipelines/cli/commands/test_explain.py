"""What is said of a model: by its id alone, wherever the published tables name it."""

import re
from pathlib import Path

import pytest

from actors.errors import ModelError
from actors.reward_model import families
from actors.settings.presets import presets
from pipelines.cli.commands.explain import explanation, known_models

HEADS = {
    "Nemotron-4-340B-Reward": "attributes",
    "Llama-3.3-Nemotron-70B-Reward": "first-logit",
    "Llama-3.3-Nemotron-70B-Reward-Multilingual": "first-logit",
    "Llama-3.1-Nemotron-70B-Reward": "first-logit",
    "Skywork-Reward-Gemma-2-27B": "scalar",
    "Skywork-Reward-Llama-3.1-8B": "scalar",
}
JUDGES = {
    "Qwen3-Nemotron-32B-GenRM-Principle": "genrm-principle",
    "Llama-3_3-Nemotron-Super-49B-GenRM": "genrm-boxed",
    "Llama-3_3-Nemotron-Super-49B-GenRM-Multilingual": "genrm-boxed",
    "Qwen3-Nemotron-235B-A22B-GenRM-2603": "genrm-json",
    "RewardAnything-8B-v1": "reward-anything",
    "RM-R1-DeepSeek-Distilled-Qwen-32B": "rm-r1",
    "RM-R1-Qwen2.5-Instruct-32B": "rm-r1-instruct",
    "R3-QWEN3-14B-LORA-4K": "r3",
}
TOLD = (
    "model",
    "what_it_is",
    "prompt_form",
    "read",
    "range",
    "order_of_responses",
    "trained_on",
    "licence",
    "limits",
    "source",
)


def test_a_model_of_the_tables_explains_itself() -> None:
    for model, family in {**HEADS, **JUDGES}.items():
        result = explanation(model)
        assert result["family"] == family
        assert all(result[name] for name in (*TOLD, "reward"))


def test_every_model_that_the_seeds_tables_name_is_one_of_these(shared_data: Path) -> None:
    rows = re.compile(r"^(?:\| )?([\w.-]*(?:Reward|GenRM|RM-R1|R3-)[\w.-]*)(?: \|)?(?: \|? ?\d+\.\d)+", re.MULTILINE)
    seeds = (path.read_text() for path in sorted(shared_data.parent.joinpath("seeds").glob("*.txt")))
    named = {name for text in seeds for name in rows.findall(text)}
    assert len(named) >= 10
    assert named <= {*HEADS, *JUDGES}


def test_every_family_says_all_of_its_models() -> None:
    for family in families().values():
        for model in family.models:
            assert explanation(model.id)["family"] == family.name


def test_a_familys_name_is_told_from_a_models() -> None:
    with pytest.raises(ModelError, match="reward-anything is a family and no model: `assay models` lists the models"):
        explanation("reward-anything")
    with pytest.raises(ModelError, match=r"or a verifier: exact-match, .*\. Did you mean 'math-equal'\?"):
        explanation("math-equals")


def test_a_limit_of_a_card_is_said() -> None:
    about = explanation("Salesforce/FARE-8B")
    assert (about["family"], about["licence"], about["limits"]) == ("rubric", "CC-BY-NC-4.0", "not for commercial use")


def test_judges_by_name_are_listed() -> None:
    listed = "\n".join(known_models())
    assert "  compassjudger2                  CompassJudger-2 (opencompass/CompassJudger-2-7B-Instruct and" in listed
    assert all(f"  {name} " in listed for name in presets())
