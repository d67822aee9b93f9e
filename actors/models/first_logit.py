"""A language model whose reward is one of its logits: the one of token id 0, at the end of the conversation.

NVIDIA put the head of these Llama reward models into row 0 of the output embedding, which the model never says; the cards
read it from the first generated position. A log-probability would differ by the log-sum of all logits, another one for each
prompt. In Llama 3's tokenizer id 0 is "!"; of any checkpoint it is the token that its own tokenizer has there.
"""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import OneLogit
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.logit_head import LogitHead

_REWARD_ID = 0
_LLAMA_3 = {"!": _REWARD_ID}
_LICENCE = "NVIDIA Open Model License, and the Llama 3.3 Community License Agreement"


class FirstLogit(OneLogit, LogitHead):
    """`*ForCausalLM` whose logit of token id 0 is the reward."""

    name = "first-logit"
    summary = "the logit of token id 0 at the end of the conversation (LlamaForCausalLM)"
    source = "nvidia/Llama-3.1-Nemotron-70B-Reward-HF and nvidia/Llama-3.3-Nemotron-70B-Reward model cards"
    read_at = "the raw logit of token id 0 at the last token"
    range = "unbounded, often negative; compare responses to one prompt"
    models = (
        KnownModel.built_in(
            "tiny-first-logit", Golden.each("What is 3 + 4?", {"7": 3.359, "9": -0.418}, 0.2), token_ids={"<s>": _REWARD_ID}
        ),
        KnownModel(
            "nvidia/Llama-3.1-Nemotron-70B-Reward*",
            "the checkpoint whose id ends with -HF; the other one is NeMo's",
            "Llama 3.1 Community License Agreement",
            4096,
            "arXiv 2410.01257",
            Golden.each("What is 1+1?", {"1+1=2": -3.28125}, 0.25),
            token_ids=_LLAMA_3,
        ),
        *(
            KnownModel(f"nvidia/Llama-3.3-Nemotron-70B-{name}", note, _LICENCE, context, card, token_ids=_LLAMA_3)
            for name, note, context, card in (
                ("Reward", "English", 4096, "arXiv 2505.11475"),
                ("Reward-Multilingual", "", 4096, "arXiv 2505.11475"),
                ("Select", "of many responses the best", None, "arXiv 2503.04378"),
            )
        ),
    )

    def tokens(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        return (checkpoint.token(_REWARD_ID),)


FAMILY = FirstLogit()
