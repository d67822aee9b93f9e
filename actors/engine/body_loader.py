"""Loads a model's body in vLLM's workers, without the tensors of a head that is applied outside: its class has none of them.

vLLM looks up a worker's extension by its name in every worker, on whatever node: so this module registers its loader there.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from torch import nn
from vllm.config import ModelConfig
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from actors.engine.engine_arguments import BODY_FORMAT, LEFT_OUT


class BodyWorker:
    """Adds nothing to a worker but this module."""


@register_model_loader(BODY_FORMAT)
class BodyLoader(DefaultModelLoader):
    """vLLM's loader of safetensors, but for the tensors whose names begin as its configuration says."""

    def __init__(self, load_config: LoadConfig) -> None:
        # vLLM's loader, which is inherited here, refuses an option that it doesn't know.
        options = dict(load_config.model_loader_extra_config)
        self._left_out = tuple(options.pop(LEFT_OUT))
        super().__init__(replace(load_config, load_format="safetensors", model_loader_extra_config=options))

    def get_all_weights(self, model_config: ModelConfig, model: nn.Module) -> Generator[tuple[str, Any], None, None]:
        weights = super().get_all_weights(model_config, model)
        return ((name, weight) for name, weight in weights if not name.startswith(self._left_out))
