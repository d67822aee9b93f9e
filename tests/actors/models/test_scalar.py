"""One logit at the end of the conversation: the plain reward model, of whatever architecture vLLM makes a classifier of."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.reward_model import resolve_model
from actors.scorers.head_scorer import HeadScorer
from actors.settings.replica import ModelSettings, RenderSettings
from tests.support.contract import TOLERANCE, Contract, conversations, transformers_model
from tests.support.models import engine_of, renderer


def all_logits(model: Any, ids: Any) -> Any:
    """The head's outputs at each token; transformers' classes keep those of the last alone."""
    return model.score(model.model(torch.tensor([ids])).last_hidden_state[0])


class TestTinyScalar(Contract):
    model = "tiny-scalar"

    def outputs(self, ids: Any) -> Any:
        return all_logits(transformers_model("scalar", "AutoModelForSequenceClassification"), ids)


SHAPE = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096, "initializer_range": 0.1,
    "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1, "vocab_size": 1024, "num_labels": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        # Skywork-Reward-Gemma-2-27B: soft caps, a sliding window in every other layer, and norms that add one.
        pytest.param("Gemma2", {"sliding_window": 64, "query_pre_attn_scalar": 32}, marks=pytest.mark.long),
        # Skywork-Reward-V2-Qwen3, Qwen-3-Nemotron-32B-Reward: norms on queries and keys.
        pytest.param("Qwen3", {}, marks=pytest.mark.long),
        # Qwen-2.5-Nemotron-32B-Reward: biases on queries, keys and values.
        pytest.param("Qwen2", {}, marks=pytest.mark.long),
    ],
)
def test_other_architectures_give_the_numbers_of_transformers(tmp_path: Path, kind: str, fields: dict[str, Any]) -> None:
    """With random weights: what is compared is the arithmetic."""
    torch.manual_seed(4)
    config = getattr(transformers, f"{kind}Config")(**SHAPE, **fields)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.normal_(mean=float(kind != "Gemma2"), std=0.3)
    model.set_attn_implementation("eager")  # soft caps are there alone
    model.save_pretrained(tmp_path)
    for file in BUILT_IN.joinpath("scalar").glob("*"):
        if file.name.startswith(("tokenizer", "chat_template")):
            tmp_path.joinpath(file.name).write_bytes(file.read_bytes())
    reward_model = resolve_model(ModelSettings(model=str(tmp_path)), RenderSettings())
    rendered = renderer(tmp_path).render(conversations()[:40])
    with torch.inference_mode():
        expected = [float(all_logits(model, item.prompts[0].ids)[-1, 0]) for item in rendered]
    with engine_of(reward_model) as engine:
        scores = [
            score.reward for (score,) in HeadScorer(reward_model.family, reward_model.weights, engine).score_block(rendered)
        ]
    assert max(expected) - min(expected) > 0.5
    assert scores == pytest.approx(expected, abs=TOLERANCE)
