"""InternLM2-Reward: the value at a token of its own, appended to the conversation.

Its class is vLLM's, its configuration's is ours (`actors/checkpoint/internlm2_config.py`): no code of the checkpoint is run.
The cards append `reward_token_id` (92527) to the token ids of the chat template's text, unless the template has written it
already; there, and nowhere else, was the value head trained, so a prompt that has it twice is refused. A tokenizer that
needs the checkpoint's code must be saved once as tokenizer.json.
"""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import OneLogit
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import Task
from actors.errors import ModelError
from actors.records import Message, Role

_TOKEN = "reward_token_id"
# The token between two trajectories of POLAR, which shares the class. InternLM2-Reward is read at it.
SEPARATOR = "<|reward|>"


def separator_id(checkpoint: Checkpoint) -> int | None:
    """The id of `SEPARATOR`; None if the tokenizer lacks it, or isn't a tokenizer.json."""
    try:
        return checkpoint.vocabulary.get(SEPARATOR)
    except ModelError:
        return None


class InternLM2(OneLogit):
    """`InternLM2ForRewardModel`."""

    name = "internlm2"
    summary = "the value at an appended reward token (InternLM2ForRewardModel)"
    source = "internlm/internlm2-7b-reward model card; InternLM model_cards/internlm2_reward.md"
    asked = "the checkpoint's chat template, without a generation prompt, then the token reward_token_id"
    read_at = "the raw output of v_head at the reward token, the last one"
    range = "unbounded; compare responses to one prompt"
    one_pass = False  # no turn but the last is followed by the reward token
    task = Task.TOKEN_CLASSIFY
    architecture = "InternLM2ForRewardModel"
    head_labels = 1
    head = "v_head.weight"
    models = (
        KnownModel.built_in("tiny-internlm2", Golden.each("What is 3 + 4?", {"7": 1.898, "9": -2.713}, 0.2)),
        KnownModel(
            "internlm/internlm2-20b-reward",
            "20 billion",
            "Apache-2.0",
            card="arXiv 2403.17297",
            golden=(
                Golden.answers(
                    (Message(Role.USER, "Hello! What's your name?"),),
                    {
                        "My name is InternLM2! A helpful AI assistant. What can I do for you?": 0.767578125,
                        "I have no idea.": -2.22265625,
                    },
                    0.25,  # the card's are of transformers in float16, and a BF16 step at 2 is 0.016
                ),
            ),
        ),
        KnownModel("internlm/internlm2-*-reward", "1.8 and 7 billion", "Apache-2.0", card="arXiv 2403.17297"),
    )

    def recognises(self, checkpoint: Checkpoint) -> bool:
        reward_id = self.reward_id(checkpoint)
        return self.fits(checkpoint) and reward_id is not None and separator_id(checkpoint) == reward_id

    def reward_id(self, checkpoint: Checkpoint) -> int | None:
        return checkpoint.config.get(_TOKEN)

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        super().check(checkpoint, published, tensor_parallel)
        if not isinstance(self.reward_id(checkpoint), int):
            raise ModelError(f"{checkpoint.folder}/config.json has no {_TOKEN}, the token at which the reward is read")
        if checkpoint.config.get("bias"):
            raise ModelError(f"{checkpoint.folder}/config.json has biases in its layers, which vLLM's class would leave out")

    def appended(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        return (checkpoint.config[_TOKEN],)

    def register(self) -> None:
        import actors.checkpoint.internlm2_config  # noqa: F401  registers itself, and is seconds of import


FAMILY = InternLM2()
