"""The configuration of `nemotron-nas`, the Llama-3.3-Nemotron-Super-49B's type, for which transformers has no class.

Its checkpoints bring one as code, which is not run. vLLM has the model itself, and needs only the fields of config.json: a
Llama each of whose layers says its own number of key-value heads and width, or that it has no attention or no MLP at all.
"""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, LlamaConfig


class Block(dict[str, Any]):
    """A part of a layer's description, with its fields as attributes, as vLLM reads them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@strict
class NemotronNasConfig(LlamaConfig):
    """A Llama with `block_configs`: for each layer what its `attention` and its `ffn` are."""

    model_type = "nemotron-nas"

    intermediate_size: int | None = None
    block_configs: list[Any] | None = None

    def __post_init__(self, **fields: Any) -> None:
        super().__post_init__(**fields)
        self.block_configs = [
            Block({part: Block(value) if isinstance(value, dict) else value for part, value in block.items()})
            for block in self.block_configs or ()
        ]


AutoConfig.register(NemotronNasConfig.model_type, NemotronNasConfig)
