"""The plain scalar head: any `*ForSequenceClassification` with one label, such as Skywork-Reward.

Asked with the checkpoint's own chat template and no generation prompt; the reward is the raw logit at the last token of
the conversation. Its scale is the model's own, and it compares only responses to the same prompt.
"""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import OneLogit
from actors.contracts.known_model import Golden, KnownModel
from actors.models.openrlhf import is_openrlhf
from actors.records import Message, Role, ToolCall

# The conversation of Skywork-Reward-V2's card. Its numbers are transformers' in BF16, of which a step at 23 is 0.125;
# SGLang's are 23.125 and 3.578.
_APPLES = (
    "Jane has 12 apples. She gives 4 apples to her friend Mark, then buys 1 more apple, and finally splits all her apples "
    "equally among herself and her 2 siblings. How many apples does each person get?"
)
_STEPS = (
    "1. Jane starts with 12 apples and gives 4 to Mark. 12 - 4 = 8. Jane now has 8 apples.\n2. Jane buys 1 more apple. "
    "8 + 1 = 9. Jane now has 9 apples.\n3. Jane splits the 9 apples equally among "
)
_THREE = f"{_STEPS}herself and her 2 siblings (3 people in total). 9 ÷ 3 = 3 apples each. Each person gets 3 apples."
_FOUR = f"{_STEPS}her 2 siblings (2 people in total). 9 ÷ 2 = 4.5 apples each. Each person gets 4 apples."
_SKYWORK = "Skywork Community License"
_NO_SYSTEM = "its card shows it no system turn"
_CALLED = (
    Message(Role.USER, "What is 3 + 4?"),
    Message(Role.ASSISTANT, "", (ToolCall("add", '{"a": 3, "b": 4}'),)),
    Message(Role.TOOL, "7"),
)


class Scalar(OneLogit):
    """One logit at the end of the conversation (Bradley-Terry or regression)."""

    name = "scalar"
    summary = "one logit at the end of the conversation (any *ForSequenceClassification, 1 label)"
    source = "Skywork-Reward and Skywork-Reward-V2 model cards; transformers' sequence classification"
    read_at = "the raw logit at the last token"
    range = "the model's own; compare responses to one prompt"
    fitting_labels = 1
    skips_padding = True
    models = (
        KnownModel.built_in("tiny-scalar", Golden.each("What is 3 + 4?", {"7": 3.495, "9": -0.497}, 0.2)),
        KnownModel.built_in("tiny-tools", (Golden.answers(_CALLED, {"7": 2.153, "9": -2.322}, 0.2),)),
        KnownModel("Skywork/Skywork-Reward-Gemma-2-27B*", "v0.1 and v0.2", _SKYWORK, card="arXiv 2410.18451"),
        KnownModel("Skywork/Skywork-Reward-Llama-3.1-8B*", "v0.1 and v0.2", _SKYWORK, card="arXiv 2410.18451"),
        KnownModel(
            "Skywork/Skywork-Reward-V2-Llama-3.1-8B",
            "8 billion",
            context=16384,
            card="arXiv 2507.01352",
            limits=_NO_SYSTEM,
            golden=(Golden.answers(_APPLES, {_THREE: 23.0, _FOUR: 3.59375}, 0.5),),
        ),
        KnownModel(
            "Skywork/Skywork-Reward-V2-Llama-*", "three sizes", context=16384, card="arXiv 2507.01352", limits=_NO_SYSTEM
        ),
        KnownModel(
            "Skywork/Skywork-Reward-V2-Qwen3-*", "four sizes", context=16384, card="arXiv 2507.01352", limits=_NO_SYSTEM
        ),
        KnownModel("nvidia/Qwen-3-Nemotron-32B-Reward", "asked without thinking", context=8192, card="arXiv 2505.11475"),
        KnownModel("nvidia/Qwen-2.5-Nemotron-32B-Reward", "", card="arXiv 2505.11475"),
    )

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return super().recognises(checkpoint) and not is_openrlhf(checkpoint)


FAMILY = Scalar()
