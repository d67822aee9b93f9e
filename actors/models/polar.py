"""POLAR: how close a response comes to a reference, as two trajectories of one prompt side by side.

The body, the head and the token that is read are InternLM2-Reward's. The text has no roles and no chat template: the
prompt and the reference, `<|reward|>`, then the prompt and the response. The authors' client cuts what is longer than
their training had it (16,384 tokens in all, 4,096 of a reference or response); here it is rejected.
"""

import json
from collections.abc import Sequence

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import REFERENCE, ChatTemplate, Question
from actors.contracts.known_model import Golden, KnownModel
from actors.errors import ModelError, Rejected
from actors.models.internlm2 import SEPARATOR, InternLM2, separator_id
from actors.records import Message, Reason, Role

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
    Golden.answers((Message(Role.USER, question),), rewards, 0.25, fields={REFERENCE: reference})
    for question, reference, rewards in _QUESTIONS
)


class Polar(InternLM2):
    """`InternLM2ForRewardModel` that is shown a reference."""

    name = "polar"
    summary = "how close a response comes to the row's reference (InternLM2ForRewardModel)"
    source = "InternLM/POLAR README and src/polar/reward_func.py; xtuner's tokenize_rmp"
    asked = "prompt and reference, <|reward|>, prompt and response, then the token reward_token_id; no roles, no template"
    range = "unbounded, mostly below 0; compare responses to one prompt by one reference"
    begins = 1
    roles = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
    control_texts = (_BOS, SEPARATOR, "[UNUSED_TOKEN_130]")
    field_names = needed_fields = (REFERENCE,)
    longest_text = 4096
    models = (
        KnownModel("internlm/POLAR-7B", "7 billion", _LICENCE, _CONTEXT, _CARD, _GOLDEN),
        KnownModel("internlm/POLAR-1_8B", "1.8 billion", _LICENCE, _CONTEXT, _CARD),
        KnownModel("internlm/POLAR-*-Base", "before it learnt preferences, to be trained on", _LICENCE, _CONTEXT, _CARD),
    )

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return self.fits(checkpoint) and separator_id(checkpoint) not in (None, self.reward_id(checkpoint))

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        super().check(checkpoint, published, tensor_parallel)
        if not self.recognises(checkpoint):
            raise ModelError(
                f"{checkpoint.folder}: the tokenizer has no token {SEPARATOR} beside the one where the reward is read, and "
                "POLAR has it between reference and response; give POLAR's own tokenizer, as tokenizer.json"
            )

    def needed_ids(self, checkpoint: Checkpoint) -> Sequence[int]:
        return (checkpoint.vocabulary[SEPARATOR],)  # a client that writes its prompts may have no reference in them

    def text(self, question: Question, template: ChatTemplate) -> str:
        reference = _read(question.fields.get(REFERENCE, ""))
        prompt = "\n".join(turn.content for turn in question.context)
        (response,) = question.responses
        return f"{_BOS}{prompt}\n{reference}{SEPARATOR}{prompt}\n{response}"

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


FAMILY = Polar()
