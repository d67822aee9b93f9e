"""NeMo-RL's environment: `register_env("assay", "assay_client.nemo_rl.AssayEnvironment")`, and `env_name: assay`.

NeMo-RL's tensor has no place for a missing number, and a NaN would spoil its group: `NoReward` ends the step.
"""

from typing import Any

import ray
import torch
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from assay_client._answers import with_opening
from assay_client._client import Client


# Asynchronous rollouts call `step` for each sample: the client makes batches of them.
@ray.remote(max_concurrency=256)  # type: ignore[call-overload]  # Ray's types have options of functions alone
class AssayEnvironment(EnvironmentInterface):
    """One turn: the last turn of each log answers `metadata["messages"]`. A log's own prompt is rendered already."""

    def __init__(self, config: dict[str, Any]) -> None:
        """`config` has the arguments of `Client`, but for the key; and `reference`, a key of the metadata to send."""
        names = ("url", "model", "principles", "timeout", "batch", "max_in_flight")
        arguments = {name: config[name] for name in names if name in config}
        self._client, self._reference = Client(**arguments), config.get("reference")

    def step(self, message_log_batch: list[Any], metadata: list[Any]) -> EnvironmentReturn:
        """As NeMo-RL calls it. Raises `NoReward`, and `KeyError` without the prompt's turns."""
        answers = [with_opening(log[-1]["content"], log[-2]["content"]) for log in message_log_batch]
        conversations = [
            {"messages": info["messages"], "responses": [answer]}
            | ({"reference": info[self._reference]} if self._reference else {})
            for answer, info in zip(answers, metadata, strict=True)
        ]
        rewards = [reward.require() for reward in self._client.rewards(conversations)]
        # One turn: the environment says nothing more, and every episode is over.
        observations = [{"role": "environment", "content": ""} for _ in rewards]
        is_over = torch.ones(len(rewards), dtype=torch.bool)
        return EnvironmentReturn(observations, metadata, [None] * len(rewards), torch.tensor(rewards), is_over, answers)

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        return batch, {}
