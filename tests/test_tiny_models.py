"""The two built-in language models keep the contracts that they stand for, read as their cards say: by transformers."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from actors.checkpoint import BUILT_IN
from tiny_models.judgements import PRINCIPLES, judgements
from tiny_models.rows import assistant
from tiny_models.synthetic import pairs

CARD = (
    "Evaluate the response to the previous prompt in terms of whether it satisfies this principle: brevity. "
    "Only answer Yes or No."
)


def loaded(name: str) -> tuple[Any, Any]:
    folder = BUILT_IN / name
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def ids_of(tokenizer: Any, messages: list[dict[str, str]], *, ask: bool) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=ask, return_dict=False))


@torch.inference_mode()
def last_logits(model: Any, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids])).logits[0, -1]


def test_the_first_logit_is_tiny_scalars_reward_and_no_other_is() -> None:
    tokenizer, model = loaded("first-logit")
    assert tokenizer.convert_tokens_to_ids("<s>") == 0
    scalar = AutoModelForSequenceClassification.from_pretrained(BUILT_IN / "scalar", dtype=torch.float32).eval()
    logits, rewards = [], []
    for pair in pairs(51, 100, "held-out"):
        for response in (pair.chosen, pair.rejected):
            ids = ids_of(tokenizer, [*pair.context, assistant(response)], ask=False)
            logits.append(last_logits(model, ids))
            with torch.inference_mode():
                rewards.append(scalar(torch.tensor([ids])).logits[0, 0])
    assert torch.stack(logits)[:, 0] == pytest.approx(torch.stack(rewards), abs=1e-5)
    chosen, rejected = torch.stack(logits).unflatten(0, (-1, 2)).unbind(dim=1)
    right = (chosen > rejected).float().mean(dim=0)
    assert right[0] > 0.94
    assert right[1:].max() < 0.75


def test_the_principle_is_read() -> None:
    tokenizer, model = loaded("principle")
    (yes,), (no,) = (tokenizer.encode(word, add_special_tokens=False) for word in ("Yes", "No"))
    won: dict[str, list[bool]] = {name: [] for name in PRINCIPLES}
    for judgement in judgements(51, 200, "held-out"):
        logits = last_logits(model, ids_of(tokenizer, judgement.messages, ask=True))
        assert int(logits.argmax()) in {yes, no}
        won[judgement.principle].append(bool(logits[yes] > logits[no]) == judgement.fulfilled)
    assert {len(each) for each in won.values()} == {50}
    assert all(sum(each) / len(each) > 0.9 for each in won.values()), won


def test_a_judgement_asks_as_the_card_does() -> None:
    judgement = next(each for each in judgements(0, 4, "train") if each.principle == "brevity")
    assert judgement.messages[-1] == {"role": "user", "content": CARD}
    assert [turn["role"] for turn in judgement.messages[-3:]] == ["user", "assistant", "user"]
