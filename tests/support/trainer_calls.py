"""Trainers' own code around the client's adapters: `python trainer_calls.py TRAINER ANSWER ...` prints what it got as JSON.

A process of its own, since the trainers' packages lie beside the environment: it imports none of the tests, whose package's
name OpenRLHF has, too. ASSAY_URL names the endpoint.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from actors.checkpoint.checkpoint_files import BUILT_IN
from assay_client import NoReward

QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]


def load_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BUILT_IN / "r3")


def ask_verl(answers: Sequence[str]) -> list[Any]:
    """The manager that verl loads by docs/guides/trainers/verl.md's settings, asked by its default trainer's agent loop.

    What composes verl's configuration and what holds its batches isn't installed: stand-ins.
    """
    for name in ("hydra", "hydra.utils", "transfer_queue", "cachetools", "torchdata", "torchdata.stateful_dataloader"):
        sys.modules[name] = MagicMock()
    import verl
    from omegaconf import OmegaConf

    folder = Path(verl.__file__).parent / "trainer"
    package = ModuleType("verl.trainer.ppo.v1")
    package.__path__ = [str(folder / "ppo" / "v1")]
    sys.modules[package.__name__] = package
    loops = importlib.import_module("verl.trainer.ppo.v1.agent_loop_tq")
    outputs = importlib.import_module("verl.experimental.agent_loop.agent_loop")
    rewards = importlib.import_module("verl.trainer.ppo.reward")
    loops.tq.async_kv_batch_put = AsyncMock()
    config = OmegaConf.load(folder / "config" / "_generated_ppo_trainer.yaml")
    assert config.trainer.use_v1
    OmegaConf.set_struct(config, True)
    (_, guide, *_) = Path("docs/guides/trainers/verl.md").read_text().split("```")
    for line in guide.removeprefix("text").split():
        OmegaConf.update(config, *line.split("="))
    tokenizer = load_tokenizer()
    worker_class = loops.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)

    async def score(answer: str) -> Any:
        manager = rewards.load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
        worker = worker_class.__new__(worker_class)
        remote = SimpleNamespace(compute_score=SimpleNamespace(remote=manager.run_single))
        worker.reward_loop_worker_handles, worker.distillation_enabled = [remote], False
        worker.mm_processor_kwargs, worker.processor = {}, None
        response = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
        output = outputs.AgentLoopOutput(
            prompt_ids=prompt, response_ids=response, response_mask=[1] * len(response), num_turns=2,
            metrics=outputs.AgentLoopMetrics(), extra_fields={"turn_scores": [], "tool_rewards": []},
        )  # fmt: skip
        row = {
            "raw_prompt": QUESTION,
            "data_source": "gsm8k",
            "reward_model": {"ground_truth": "7"},
            "extra_info": {"index": 0},
        }
        await worker._agent_loop_postprocess(output, False, uid="u", session_id=0, global_steps=0, **row)
        return output.reward_score

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

    entry_point = "assay_client.skyrl:AssayEnv"
    skyrl_gym.register(id="assay", entry_point=entry_point)
    skyrl_gym.register(id="assay-reference", entry_point=entry_point, kwargs={"reference": True})

    async def score(answer: str) -> Any:
        extras = {"reward_spec": {"ground_truth": "7"}, "max_turns": 1}
        compared: Any = skyrl_gym.make("assay-reference", env_config={}, extras=extras)
        assert compared._reference == {"reference": "7"}
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
