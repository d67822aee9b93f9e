"""The configuration of InternLM2, for which transformers has no class. Its checkpoints bring one as code: not run."""

from transformers import AutoConfig, LlamaConfig


class InternLM2Config(LlamaConfig):
    """InternLM2 is a Llama with other names for its weights; the fields of its config.json are Llama's."""

    model_type = "internlm2"


AutoConfig.register(InternLM2Config.model_type, InternLM2Config)
