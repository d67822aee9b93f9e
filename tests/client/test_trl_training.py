"""A step of GRPO by TRL's own trainer on SmolLM2-135M, with rewards of a real model behind `assay serve`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from assay_client import Client
from assay_client.trl import AssayReward
from tests.support.endpoints import QUESTION, serving
from tests.support.real_models import real_model

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),  # TRL's, transformers' and torch's to each other
]
PROMPTS = [QUESTION, [{"role": "user", "content": "Name a colour."}]]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("--model", "tiny-attributes", log=tmp_path_factory.mktemp("serve") / "log") as (address, _):
        yield address


class Recorded(AssayReward):
    """Keeps what TRL asked and got; the last completion has no text, as if the policy had ended at once."""

    calls: list[tuple[list[Any], list[Any], list[float | None]]]

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        completions = [*completions[:-1], [{"role": "assistant", "content": ""}]]
        rewards = super().__call__(prompts, completions, **columns)
        self.calls = [*getattr(self, "calls", []), (prompts, completions, rewards)]
        return rewards


def test_a_step_of_grpo_goes_by_the_endpoints_rewards(address: str, tmp_path: Path) -> None:
    from datasets import Dataset  # type: ignore[import-untyped]
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", max_steps=1,
        per_device_train_batch_size=8, num_generations=4, max_completion_length=12, learning_rate=1e-4, logging_steps=1,
        save_strategy="no", seed=7, disable_tqdm=True,
    )  # fmt: skip
    policy = real_model("smollm2")
    model: Any = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    before = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    with Client(address) as client:
        reward = Recorded(client)
        trainer = GRPOTrainer(
            model=model, reward_funcs=reward, args=settings, train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
            processing_class=AutoTokenizer.from_pretrained(policy),
        )  # fmt: skip
        trainer.train()

    ((prompts, completions, rewards),) = reward.calls
    conversations = [{"messages": [*prompt, *answer]} for prompt, answer in zip(prompts, completions, strict=True)]
    answer = httpx.post(f"{address}/v1/rewards", json={"conversations": conversations}, timeout=60).json()
    assert rewards == pytest.approx([judged["responses"][0]["reward"] for judged in answer["data"]], abs=1e-4)
    assert rewards[-1] is None
    numbers = torch.tensor([number for number in rewards if number is not None])
    assert len(numbers) == 7
    assert numbers.std() > 0.1

    (log,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    # TRL's mean is that of the seven; with the missing one as 0.0 it would be another.
    assert log["reward"] == pytest.approx(float(numbers.mean()), abs=1e-3)
    assert not torch.equal(model.model.layers[0].self_attn.q_proj.weight, before)
