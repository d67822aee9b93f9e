"""The plain scalar head: any `*ForSequenceClassification` with one label, such as Skywork-Reward.

Asked with the checkpoint's own chat template and no generation prompt; the reward is the raw logit at the last token of
the conversation. Its scale is the model's own, and it compares only responses to the same prompt.
"""

from collections.abc import Mapping, Sequence

from actors.checkpoint import Checkpoint
from actors.family import ChatTemplate, Family, Golden, KnownModel
from actors.records import Message


class Scalar(Family):
    """One logit at the end of the conversation (Bradley-Terry or regression)."""

    name = "scalar"
    summary = "one logit at the end of the conversation (any *ForSequenceClassification, 1 label)"
    source = "Skywork-Reward and Skywork-Reward-V2 model cards; transformers' sequence classification"
    asked = "the checkpoint's chat template, without a generation prompt"
    read_at = "the raw logit at the last token"
    range = "the model's own; compare responses to one prompt"
    models = (
        KnownModel(
            "tiny-scalar",
            "built in; for trying things out and for tests",
            "Apache-2.0",
            golden=(
                Golden.answer("What is 3 + 4?", "7", 3.495, 0.2),
                Golden.answer("What is 3 + 4?", "9", -0.497, 0.2),
            ),
        ),
        KnownModel("Skywork/Skywork-Reward-Gemma-2-27B*", "v0.1 and v0.2", card="arXiv 2410.18451"),
        KnownModel("Skywork/Skywork-Reward-Llama-3.1-8B*", "v0.1 and v0.2", card="arXiv 2410.18451"),
        KnownModel("Skywork/Skywork-Reward-V2-Llama-*", "three sizes", context=16384, card="arXiv 2507.01352"),
        KnownModel("Skywork/Skywork-Reward-V2-Qwen3-*", "four sizes", context=16384, card="arXiv 2507.01352"),
        KnownModel("nvidia/Qwen-3-Nemotron-32B-Reward", "asked without thinking", context=8192, card="arXiv 2505.11475"),
        KnownModel("nvidia/Qwen-2.5-Nemotron-32B-Reward", "", card="arXiv 2505.11475"),
    )
    one_pass = True  # a template closes each turn with the token that is read

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture.endswith("ForSequenceClassification") and checkpoint.labels == 1

    def outputs(self) -> tuple[str, ...]:
        return ("score",)

    def card_weights(self) -> Mapping[str, float]:
        return {"score": 1.0}

    def text(self, messages: Sequence[Message], template: ChatTemplate) -> str:
        return template(messages)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        (score,) = values
        return {"score": score}


FAMILY = Scalar()
