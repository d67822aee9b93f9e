"""InternLM2-Reward: the value at a token of its own, appended to the conversation; and POLAR, which shares its class.

Its class is vLLM's, its configuration's is ours (`actors/checkpoint/internlm2_config.py`): no code of the checkpoint is run.
The cards append `reward_token_id` (92527) to the token ids of the chat template's text, unless the template has written it
already; there, and nowhere else, was the value head trained, so a prompt that has it twice is refused. A tokenizer that
needs the checkpoint's code must be saved once as tokenizer.json.
"""

import json
from collections.abc import Sequence

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import REFERENCE, ChatTemplate, OneLogit, Question
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import Task
from actors.errors import ModelError, Rejected
from actors.records import Reason, Role

_TOKEN = "reward_token_id"
# The token between two trajectories of POLAR, which shares the class. InternLM2-Reward is read at it.
_SEPARATOR = "<|reward|>"


def _separator_id(checkpoint: Checkpoint) -> int | None:
    # None if the tokenizer lacks it, or isn't a tokenizer.json.
    try:
        return checkpoint.vocabulary.get(_SEPARATOR)
    except ModelError:
        return None


class InternLM2(OneLogit):
    """`InternLM2ForRewardModel`."""

    name = "internlm2"
    summary = "the value at an appended reward token (InternLM2ForRewardModel)"
    source = "internlm/internlm2-7b-reward model card; InternLM model_cards/internlm2_reward.md"
    prompt_form = "the checkpoint's chat template, without a generation prompt, then the token reward_token_id"
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
                    "Hello! What's your name?",
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
        return self.fits(checkpoint) and reward_id is not None and _separator_id(checkpoint) == reward_id

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


_BOS = "<s>"
_LICENCE, _CONTEXT, _CARD = "Apache-2.0", 16_384, "arXiv 2507.05197"

# The README's three questions to POLAR-7B. The first rewards are transformers', the others of a server in 16 bits.
_COUNTED = "'s', 't', 'r', 'a', 'w', 'b', 'e', 'r', 'r', 'y'."
_LETTERS = f"Let's count the 'r's in 'strawberry': {_COUNTED}"
_THREE = f"There are 3 'r's in the word 'strawberry'. Here's how we can count them: {_COUNTED} So, the answer is 3."
_DUNE = "Royal teen discovers that life’s a beach—minus the ocean, plus spice, giant sandworms and deadly politics."
_QUESTIONS = (
    ("What is the capital of China?", "Beijing.", {"Beijing.": -0.5702977776527405, "Shanghai.": -11.030370712280273}),
    (
        "How many 'r's are there in the word 'strawberry'?",
        _THREE,
        {
            _THREE: 0.054595947265625,
            f"{_LETTERS} There are three 'r's, so the answer is three.": -2.005859375,
            "There are 3 'r's in the word 'strawberry'.": -6.70703125,
            f"{_LETTERS} There are two 'r's, so the answer is three.": -7.10546875,
            f"{_LETTERS} There are three 'r's, so the answer is two.": -7.1328125,
            f"{_LETTERS} There are two 'r's, so the answer is two.": -8.46875,
            "There are 2 'r's in the word 'strawberry'.": -10.8203125,
        },
    ),
    (
        "Summarize the first book of Frank Herbert’s Dune in one witty short sentence.",
        _DUNE,
        {
            _DUNE: 0.466552734375,
            "Young noble’s move to desert planet turns into galactic Game of Thrones with fewer dragons, more worms.": (
                -6.91796875
            ),
            "Royal teen discovers that life’s a beach—minus the ocean, plus magic, dark wizards and deadly politics.": (
                -7.70703125
            ),
            "Paul Atreides loses his father, gains prophetic powers, learns to ride a sandworm, leads a holy war, and "
            "discovers that being the chosen one comes with a lot of blood, sand, and questionable decisions.": -8.4296875,
            "A noble family’s fall sparks a young heir’s rise as a leader on a harsh desert planet governed by prophecy "
            "and survival.": -8.6484375,
            "Boy gets planet, becomes god, loses soul — family drama ensues across galaxies.": -10.359375,
        },
    ),
)
_GOLDEN = tuple(
    Golden.answers(question, rewards, 0.25, fields={REFERENCE: reference}) for question, reference, rewards in _QUESTIONS
)


class Polar(InternLM2):
    """How close a response comes to a reference, as two trajectories of one prompt side by side.

    Body, head and the token that is read are InternLM2-Reward's. The text has no roles and no chat template: the prompt and
    the reference, `<|reward|>`, then the prompt and the response. The authors' client cuts what is longer than their
    training had it (16,384 tokens in all, 4,096 of a reference or response); here it is rejected.
    """

    name = "polar"
    summary = "how close a response comes to the row's reference (InternLM2ForRewardModel)"
    source = "InternLM/POLAR README and src/polar/reward_func.py; xtuner's tokenize_rmp"
    prompt_form = (
        "prompt and reference, <|reward|>, prompt and response, then the token reward_token_id; no roles, no template"
    )
    range = "unbounded, mostly below 0; compare responses to one prompt by one reference"
    begins = 1
    roles = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
    control_texts = (_BOS, _SEPARATOR, "[UNUSED_TOKEN_130]")
    field_names = needed_fields = (REFERENCE,)
    longest_text = 4096
    models = (
        KnownModel("internlm/POLAR-7B", "7 billion", _LICENCE, _CONTEXT, _CARD, _GOLDEN),
        KnownModel("internlm/POLAR-1_8B", "1.8 billion", _LICENCE, _CONTEXT, _CARD),
        KnownModel("internlm/POLAR-*-Base", "before it learnt preferences, to be trained on", _LICENCE, _CONTEXT, _CARD),
    )

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return self.fits(checkpoint) and _separator_id(checkpoint) not in (None, self.reward_id(checkpoint))

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        super().check(checkpoint, published, tensor_parallel)
        if not self.recognises(checkpoint):
            raise ModelError(
                f"{checkpoint.folder}: the tokenizer has no token {_SEPARATOR} beside the one where the reward is read, and "
                "POLAR has it between reference and response; give POLAR's own tokenizer, as tokenizer.json"
            )

    def needed_ids(self, checkpoint: Checkpoint) -> Sequence[int]:
        return (checkpoint.vocabulary[_SEPARATOR],)  # a client that writes its prompts may have no reference in them

    def text(self, question: Question, template: ChatTemplate) -> str:
        reference = _read(question.fields.get(REFERENCE, ""))
        prompt = "\n".join(turn.content for turn in question.context)
        (response,) = question.responses
        return f"{_BOS}{prompt}\n{reference}{_SEPARATOR}{prompt}\n{response}"

    def shown(self, question: Question) -> tuple[str, ...]:
        return (_read(question.fields.get(REFERENCE, "")).strip(), *super().shown(question))


def _read(reference: str) -> str:
    # The text of a reference, or of its messages where it is one or a list, as in POLAR's own files. Raises `Rejected`.
    try:
        parts = json.loads(reference) if reference.lstrip().startswith(("[", "{")) else ()
    except (ValueError, RecursionError):
        parts = ()
    parts = [parts] if isinstance(parts, dict) else parts
    if parts and all(isinstance(part, dict) and {"role", "content"} <= part.keys() for part in parts):
        if not all(isinstance(part["content"], str) for part in parts):
            raise Rejected(Reason.BAD_REFERENCE, "it is a list of messages, and one of them is no text")
        reference = "\n".join(part["content"] for part in parts)
    elif parts and all(isinstance(part, str) for part in parts):
        raise Rejected(Reason.BAD_REFERENCE, "it is a list of texts, and the model reads one")
    if not reference.strip():
        raise Rejected(Reason.NO_REFERENCE)
    return reference


FAMILY = (InternLM2(), Polar())
