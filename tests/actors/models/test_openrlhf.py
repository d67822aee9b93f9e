"""OpenRLHF's reward models: its dataset's text and its class's arithmetic, restated in plain torch."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.contracts.pooled_head import PooledHead
from actors.errors import ModelError
from actors.records import Reason
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import ModelSettings, RenderSettings
from tests.support.contract import tokenizer, transformers_model
from tests.support.models import assistant, ids_of, reason_of, request, reward_model, user

MARKS = {"architectures": ["RewardModel"], "value_head_prefix": "score", "normalize_reward": False}
END, CLOSED, OPEN = "<|end|>", "<|end|>\n", "<|im_end|>\n"


def trained(folder: Path, *, closes: str = CLOSED, eos: str = END, head: str = "score", **config: Any) -> Path:
    """tiny-scalar as OpenRLHF saves it: no labels, the padding token is EOS, and the template's turns end as Qwen's."""
    shutil.copytree(BUILT_IN / "scalar", folder)
    (path,) = folder.glob("config.json")
    changed = {**json.loads(path.read_text()), **MARKS, **config}
    del changed["id2label"], changed["label2id"]
    path.write_text(json.dumps({**changed, "pad_token_id": tokenizer("scalar").convert_tokens_to_ids(eos)}))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": eos}))
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("<|end|>' }}", closes.replace("\n", "\\n") + "' }}"))
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{head}.weight"] = tensors.pop("score.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def texts_ids(text: str, eos: str) -> list[int]:
    """`RewardDataset.__getitem__`, openrlhf/datasets/reward_dataset.py."""
    text = text.rstrip("\n")
    if not text.endswith(eos):
        text += " " + eos
    ids: list[int] = tokenizer("scalar")(text, add_special_tokens=False)["input_ids"]
    ids[-1] = tokenizer("scalar").convert_tokens_to_ids(eos)
    return ids


def outputs_of(model: RewardModel, ids: list[int]) -> float:
    """The product's head on transformers' hidden state at the last id."""
    assert isinstance(model.family, PooledHead)
    head = model.family.load(model.checkpoint)
    with torch.inference_mode():
        state = transformers_model("scalar", "AutoModelForSequenceClassification").model(torch.tensor([ids]))
    return head.outputs(state.last_hidden_state[0, -1])[0]


@pytest.mark.parametrize(
    ("closes", "eos"),
    [(CLOSED, END), (END, END), (CLOSED, "</s>"), (OPEN, "</s>"), ("\n\n", END)],
    ids=["Qwen", "Llama", "another EOS", "no special token", "no end"],
)
def test_texts_end_as_openrlhfs_trainer_ends_them(tmp_path: Path, closes: str, eos: str) -> None:
    item = Renderer(reward_model(trained(tmp_path / "model", closes=closes, eos=eos)), RenderSettings())
    turns = (("user", "Hi"), ("assistant", "Ho"), ("user", "A"), ("assistant", "B"))
    text = "<s>" + "".join(f"<|start|>{role}\n\n{content}{closes}" for role, content in turns)
    expected = texts_ids(text, eos)
    assert ids_of(item.render([request(user("Hi"), assistant("Ho"), user("A"), to="B")])[0]) == expected
    assert ids_of(item.from_rendered(text)) == expected, "a client's text is closed likewise"
    assert ids_of(item.from_rendered(expected)) == expected
    assert reason_of(item.from_rendered(expected[:-1])) is Reason.TEMPLATE_REFUSED, "ids that are read elsewhere"
    assert reason_of(item.from_rendered("")) is Reason.EMPTY_CONTENT


def test_a_bos_is_there_only_if_the_template_writes_it(tmp_path: Path) -> None:
    folder = trained(tmp_path / "model")
    template = (folder / "chat_template.jinja").read_text().replace("{{- bos_token }}\n", "")
    settings = ModelSettings(model=str(folder), chat_template=template)
    item = Renderer(resolve_model(settings, RenderSettings()), RenderSettings())
    text = f"<|start|>user\n\nHi{CLOSED}<|start|>assistant\n\nHo{CLOSED}"
    assert ids_of(item.render([request(user("Hi"), to="Ho")])[0]) == ids_of(item.from_rendered(text)) == texts_ids(text, END)


@pytest.mark.parametrize("kind", ["RewardModel", "LlamaForSequenceClassification"])
@pytest.mark.parametrize("head", ["score", "value_head"])
@pytest.mark.parametrize("normalises", [False, True])
def test_the_reward_is_that_of_openrlhfs_class(tmp_path: Path, kind: str, head: str, normalises: bool) -> None:
    config: dict[str, Any] = {
        "architectures": [kind],
        "normalize_reward": normalises,
        "mean": 3.25,
        "std": 1.75,
        "value_head_prefix": head,
    }
    model = reward_model(trained(tmp_path / "model", head=head, **config))
    assert (model.family_name, model.labels, model.overrides) == ("openrlhf", 1, {"architectures": ["LlamaForCausalLM"]})
    ids = ids_of(Renderer(model, RenderSettings()).render([request(user("What is 3 + 4?"), to="7")])[0])
    classifier = transformers_model("scalar", "AutoModelForSequenceClassification")
    with torch.inference_mode():
        raw = float(classifier.score(classifier.model(torch.tensor([ids])).last_hidden_state[0, -1]))
    assert outputs_of(model, ids) == pytest.approx((raw - 3.25) / 1.75 if normalises else raw, abs=1e-5)


@pytest.mark.parametrize(
    ("mean", "std"), [(None, None), (3.25, None), (None, 1.75), (3.25, 0), (3.25, -1.0), (float("nan"), 1.0), ("3", 1.0)]
)
def test_numbers_that_normalise_nothing_are_refused(tmp_path: Path, mean: Any, std: Any) -> None:
    folder = trained(tmp_path / "model", normalize_reward=True, mean=mean, std=std)
    with pytest.raises(ModelError, match=r"normalize_reward True with mean .* give both as numbers, std above 0"):
        reward_model(folder)


def test_a_tokenizer_without_eos_is_refused(tmp_path: Path) -> None:
    folder = trained(tmp_path / "model")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": None}))
    with pytest.raises(ModelError, match="the tokenizer has no eos_token, and OpenRLHF's reward models are read there"):
        Renderer(reward_model(folder), RenderSettings())


def test_one_that_another_trainer_took_over_is_read_as_the_user_says(tmp_path: Path) -> None:
    folder = trained(tmp_path / "model", architectures=["LlamaForSequenceClassification"], num_labels=1)
    settings = ModelSettings(model=str(folder), family="scalar")
    assert resolve_model(settings, RenderSettings()).family_name == "scalar"
