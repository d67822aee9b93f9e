"""SkyRL's environment: `skyrl_gym.register(id="assay", entry_point="assay_client.skyrl:AssayEnv")`, `env_class: assay`.

SkyRL has no place for a missing number: `NoReward` ends the generation.
"""

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from assay_client._answers import with_opening
from assay_client._client import default_client


class AssayEnv(BaseTextEnv):
    """One turn: the policy's answer to the prompt is judged, and the episode is over."""

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None, *, reference: bool = False) -> None:
        """`reference`, of `register`'s `kwargs`, sends `extras["reward_spec"]["ground_truth"]`.

        SkyRL's configuration has no place for it: it refuses keys that it doesn't know.
        """
        super().__init__()
        self._reference = {"reference": (extras or {})["reward_spec"]["ground_truth"]} if reference else {}
        self._prompt: list[dict[str, str]] = []

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        self._prompt = list(prompt)
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """The reward of an answer. Raises `NoReward`."""
        conversation = {"messages": self._prompt, "responses": [with_opening(action)], **self._reference}
        (reward,) = default_client().rewards([conversation])
        return BaseTextEnvStepOutput(observations=[], reward=reward.require(), done=True, metadata={"scores": reward.scores})
