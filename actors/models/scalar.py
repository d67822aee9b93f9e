"""The plain scalar head: any `*ForSequenceClassification` with one label, such as Skywork-Reward.

Asked with the checkpoint's own chat template and no generation prompt; the reward is the raw logit at the last token of
the conversation. Its scale is the model's own, and it compares only responses to the same prompt.
"""

from collections.abc import Mapping, Sequence

from actors.checkpoint import Checkpoint
from actors.family import ChatTemplate, Family, KnownModel
from actors.records import Message


class Scalar(Family):
    """One logit at the end of the conversation (Bradley-Terry or regression)."""

    name = "scalar"
    summary = "one logit at the end of the conversation (any *ForSequenceClassification, 1 label)"
    source = "Skywork-Reward and Skywork-Reward-V2 model cards"
    models = (
        KnownModel("tiny-scalar", "built in; for trying things out and for tests"),
        KnownModel("Skywork/Skywork-Reward-V2-Llama-3.1-8B", "and every other checkpoint of this form"),
    )
    one_pass = True  # a template closes each turn with the token that is read

    def serves(self, checkpoint: Checkpoint) -> bool:
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
