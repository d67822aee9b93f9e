"""Trainers' own code around the client's adapters: `python trainer_calls.py TRAINER ANSWER ...` prints what it got as JSON.

A process of its own, since the trainers' packages lie beside the environment: it imports none of the tests, whose package's
name OpenRLHF has, too. ASSAY_URL names the endpoint.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from actors.checkpoint.checkpoint_files import BUILT_IN
from assay_client import NoReward

QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]


def load_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BUILT_IN / "r3")


def ask_verl(answers: Sequence[str]) -> list[Any]:
    """`load_reward_manager` with the settings of docs/guides/trainers/verl.md, and its `naive` manager for each answer.

    `tool_extra_fields` is where verl's agent loop puts the prompt.
    """
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    function = {"path": "pkg://assay_client.verl", "name": "compute_score", "reward_kwargs": {}}
    manager_settings = {"source": "register", "name": "naive"}
    config = OmegaConf.create({"reward": {"custom_reward_function": function, "reward_manager": manager_settings}})
    tokenizer = load_tokenizer()

    async def score(answer: str) -> Any:
        responses = torch.tensor([[*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]])
        prompts = torch.tensor([tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)])
        others: dict[str, Any] = {
            "data_source": "gsm8k",
            "reward_model": {"ground_truth": "7"},
            "extra_info": {"index": 0},
            "tool_extra_fields": {"raw_prompt": QUESTION},
            "__num_turns__": 2,
        }
        mask = torch.ones(1, prompts.numel() + responses.numel(), dtype=torch.long)
        data = DataProto.from_dict(
            tensors={"prompts": prompts, "responses": responses, "attention_mask": mask},
            non_tensors={name: np.array([value], dtype=object) for name, value in others.items()},
        )
        return (await load_reward_manager(config, tokenizer).run_single(data))["reward_score"]

    return run_all(score, answers)


def ask_openrlhf(answers: Sequence[str]) -> list[Any]:
    """`SingleTurnAgentExecutor` with the file of docs/guides/trainers/openrlhf.md; what generates is a stand-in."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    tokenizer = load_tokenizer()
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)

    async def score(answer: str) -> Any:
        tokens = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]

        async def generate(*_: Any, **__: Any) -> Any:
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)])

        sampling = SimpleNamespace(max_tokens=64, logprobs=None)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "my_reward.py"
            file.write_text("from assay_client.openrlhf import reward_func\n")
            executor = SingleTurnAgentExecutor(str(file))
            output = await executor.execute(prompt, "7", sampling, 4096, tokenizer, SimpleNamespace(generate=generate))
        return None if output["reward"] is None else output["reward"].tolist()

    return run_all(score, answers)


def ask_skyrl(answers: Sequence[str]) -> list[Any]:
    """An environment of SkyRL's gym, made by its registered name as its generator makes it."""
    import skyrl_gym

    skyrl_gym.register(id="assay", entry_point="assay_client.skyrl:AssayEnv")

    async def score(answer: str) -> Any:
        extras = {"reward_spec": {"ground_truth": "7"}, "max_turns": 1}
        environment: Any = skyrl_gym.make("assay", env_config={}, extras=extras)
        await asyncio.to_thread(environment.init, QUESTION)
        step = await asyncio.to_thread(environment.step, answer)
        return step["reward"]

    return run_all(score, answers)


def run_all(score: Callable[[str], Awaitable[Any]], answers: Sequence[str]) -> list[Any]:
    """All at once, as trainers do; an adapter's exception as its reason."""

    async def score_or_reason(answer: str) -> Any:
        try:
            return await score(answer)
        except NoReward as error:
            return error.reason

    async def gather() -> list[Any]:
        return await asyncio.gather(*map(score_or_reason, answers))

    return asyncio.run(gather())


CALLS = {"verl": ask_verl, "openrlhf": ask_openrlhf, "skyrl": ask_skyrl}

if __name__ == "__main__":
    name, *texts = sys.argv[1:]
    print(json.dumps(CALLS[name](texts)))
