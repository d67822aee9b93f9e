"""The plain scalar head: any `*ForSequenceClassification` with one label, such as Skywork-Reward.

Asked with the checkpoint's own chat template and no generation prompt; the reward is the raw logit at the last token of
the conversation. Its scale is the model's own, and it compares only responses to the same prompt.
"""

from actors.checkpoint import Checkpoint
from actors.family import Golden, KnownModel, OneLogit


class Scalar(OneLogit):
    """One logit at the end of the conversation (Bradley-Terry or regression)."""

    name = "scalar"
    summary = "one logit at the end of the conversation (any *ForSequenceClassification, 1 label)"
    source = "Skywork-Reward and Skywork-Reward-V2 model cards; transformers' sequence classification"
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

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture.endswith("ForSequenceClassification") and checkpoint.labels == 1


FAMILY = Scalar()
