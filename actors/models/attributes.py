"""The nine-output attribute head of Nemotron-4-340B-Reward: five trained attributes and a weighted reward.

Asked with NeMo's own text, which always carries the same system turn: a row's own system turn isn't shown to the model,
as in the authors' annotation script (NeMo-Aligner, examples/nlp/data/steerlm). Every assistant turn is a prompt of its
own, ended by `<extra_id_2>`, where the nine outputs are read raw; inside a longer conversation another token stands there,
so no two turns share a forward pass. Outputs are mostly between 0 and 4 and may leave that
range. Weights and attributes: the model card; the head has a bias, which a converted checkpoint holds as `score.bias`.

The published checkpoint is NeMo's. What a converted one must hold: `architectures: ["NemotronForSequenceClassification"]`,
nine labels, `score.weight` and `score.bias` from rm_head, and the layer norms as NeMo stores them (gamma minus one), since
transformers' class adds one as well.
"""

import math
from collections.abc import Mapping, Sequence

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import ChatTemplate, Family, Question
from actors.contracts.known_model import Golden, KnownModel
from actors.errors import ModelError, Rejected
from actors.records import Reason, Role

SYSTEM_TURN = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
# The head's columns in their order: four that the published model wasn't trained on, then HelpSteer2's five.
UNTRAINED = ("quality", "toxicity", "humor", "creativity")
ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
_LABELS = len(UNTRAINED) + len(ATTRIBUTES)
# The card's weights for one number: verbosity counts against a response.
CARD_WEIGHTS = dict(zip(ATTRIBUTES, (0.3, 0.74, 0.46, 0.47, -0.33), strict=True))
_SPEAKERS: Mapping[str, str] = {Role.USER: "User", Role.ASSISTANT: "Assistant"}


class Attributes(Family):
    """`NemotronForSequenceClassification` with nine labels."""

    name = "attributes"
    summary = "five HelpSteer2 attributes and their weighted sum (NemotronForSequenceClassification, 9 labels)"
    source = "nvidia/Nemotron-4-340B-Reward model card; NeMo-Aligner, examples/nlp/data/steerlm/common.py"
    prompt_form = "NeMo's <extra_id_*> text, always with its own system turn"
    read_at = "nine raw outputs with bias at <extra_id_2>, the last token; five of them were trained"
    range = "each mostly 0 to 4, and may leave that"
    models = (
        KnownModel.built_in("tiny-attributes", Golden.each("What is 3 + 4?", {"7": 7.546, "9": 1.792}, 0.2)),
        KnownModel(
            "nvidia/Nemotron-4-340B-Reward",
            "as a Hugging Face checkpoint with score.weight and score.bias",
            "NVIDIA Open Model License",
            4096,
            "arXiv 2406.11704",
            limits="English",
        ),
    )
    architecture = "NemotronForSequenceClassification"
    fitting_labels = _LABELS
    roles = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
    last_token = "<extra_id_2>"
    begins = 0  # NeMo's text begins with <extra_id_0>, and no BOS
    ways = frozenset({"all_outputs", "steerlm_rounding"})
    control_texts = ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        super().check(checkpoint, published, tensor_parallel)
        if checkpoint.tensors and "score.bias" not in checkpoint.tensors:
            raise ModelError(
                f"{checkpoint.folder} has no score.bias, and the attribute head has one: every score would be shifted. "
                "Convert the checkpoint again, with its rm_head's bias as score.bias"
            )
        hidden = checkpoint.config.get("hidden_size")
        for name, shape in (("score.weight", (_LABELS, hidden)), ("score.bias", (_LABELS,))):
            if checkpoint.tensors and hidden and (stored := checkpoint.tensors[name]) not in (None, shape):
                raise ModelError(
                    f"{checkpoint.folder}: {name} is {list(stored or ())}, and the attribute head's is {list(shape)}, "
                    f"one row for each of {', '.join((*UNTRAINED, *ATTRIBUTES))}. "
                    "Convert the checkpoint again, with all of rm_head"
                )

    def outputs(self) -> tuple[str, ...]:
        return (*UNTRAINED, *ATTRIBUTES) if self.way.all_outputs else ATTRIBUTES

    def card_weights(self) -> Mapping[str, float]:
        return CARD_WEIGHTS

    def text(self, question: Question, template: ChatTemplate) -> str:
        messages = question.messages
        turns = messages[1:] if messages and messages[0].role is Role.SYSTEM else messages
        if turns == messages[-1:]:  # the row's system turn isn't shown, so this would be an answer to nothing
            raise Rejected(Reason.NO_MESSAGES)
        if any(turn.role not in _SPEAKERS for turn in turns):
            raise Rejected(Reason.TEMPLATE_REFUSED, "a system turn after the first turn")
        spoken = "".join(f"<extra_id_1>{_SPEAKERS[turn.role]}\n{turn.content}\n" for turn in turns)
        return f"<extra_id_0>System\n{SYSTEM_TURN}\n{spoken}<extra_id_2>"

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        named = dict(zip((*UNTRAINED, *ATTRIBUTES), values, strict=True))
        if self.way.steerlm_rounding:
            named = {name: _round_as_steerlm(value) for name, value in named.items()}
        return {name: named[name] for name in self.outputs()}


def _round_as_steerlm(value: float) -> float:
    """As NeMo-Aligner's attribute_annotate.py: clip to 0 to 4, then round half to even; NaN stays NaN."""
    return value if math.isnan(value) else float(round(min(max(value, 0.0), 4.0)))


FAMILY = Attributes()
