"""The nine-output attribute head of Nemotron-4-340B-Reward: five trained attributes and a weighted reward.

Asked with NeMo's own text, which always carries the same system turn: a row's own system turn isn't shown to the model,
as in the authors' annotation script (NeMo-Aligner, examples/nlp/data/steerlm). Every assistant turn is a prompt of its
own, ended by `<extra_id_2>`, where the nine outputs are read raw; inside a longer conversation another token stands there,
so no two turns share a forward pass. Outputs are mostly between 0 and 4 and may leave that
range. Weights and attributes: the model card; the head has a bias, which a converted checkpoint holds as `score.bias`.
"""

from collections.abc import Mapping, Sequence

from actors.checkpoint import Checkpoint
from actors.errors import ModelError, Rejected
from actors.family import ChatTemplate, Family, KnownModel
from actors.records import Message, Reason, Role

SYSTEM_TURN = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
UNTRAINED = ("quality", "toxicity", "humor", "creativity")
ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
CARD_WEIGHTS = dict(zip(ATTRIBUTES, (0.3, 0.74, 0.46, 0.47, -0.33), strict=True))
_SPEAKERS = {Role.USER: "User", Role.ASSISTANT: "Assistant"}


class Attributes(Family):
    """`NemotronForSequenceClassification` with nine labels."""

    name = "attributes"
    summary = "five HelpSteer2 attributes and their weighted sum (NemotronForSequenceClassification, 9 labels)"
    source = "nvidia/Nemotron-4-340B-Reward model card; NeMo-Aligner"
    models = (
        KnownModel("tiny-attributes", "built in; for trying things out and for tests"),
        KnownModel("nvidia/Nemotron-4-340B-Reward", "as a Hugging Face checkpoint with score.weight and score.bias"),
    )
    control_texts = ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")

    def serves(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture == "NemotronForSequenceClassification" and checkpoint.labels == self._labels

    def check(self, checkpoint: Checkpoint) -> None:
        super().check(checkpoint)
        if checkpoint.tensors and "score.bias" not in checkpoint.tensors:
            raise ModelError(
                f"{checkpoint.folder} has no score.bias, and the attribute head has one: every score would be shifted. "
                "Convert the checkpoint again, with its rm_head's bias as score.bias"
            )

    def outputs(self) -> tuple[str, ...]:
        return ATTRIBUTES

    def card_weights(self) -> Mapping[str, float]:
        return CARD_WEIGHTS

    def roles(self) -> frozenset[Role]:
        return frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})

    def last_token(self) -> str:
        return "<extra_id_2>"

    def text(self, messages: Sequence[Message], template: ChatTemplate) -> str:
        turns = messages[1:] if messages and messages[0].role is Role.SYSTEM else messages
        if any(turn.role not in _SPEAKERS for turn in turns):
            raise Rejected(Reason.TEMPLATE_REFUSED, "a system turn after the first turn")
        spoken = "".join(f"<extra_id_1>{_SPEAKERS[turn.role]}\n{turn.content}\n" for turn in turns)
        return f"<extra_id_0>System\n{SYSTEM_TURN}\n{spoken}<extra_id_2>"

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        return dict(zip(ATTRIBUTES, values[len(UNTRAINED) :], strict=True))

    @property
    def _labels(self) -> int:
        return len(UNTRAINED) + len(ATTRIBUTES)


FAMILY = Attributes()
