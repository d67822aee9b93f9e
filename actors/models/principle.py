"""A language model that is asked whether a response fulfils a principle: its logit of Yes less that of No.

The question is a user's turn after the response, word for word the model card's; the two logits are those of the first token
that the model would say. One forward pass for each principle. The principles come with the run (`--principles`), each a
score of its own, or with each row: then `scores` has their mean and their least.

The card gives one principle's reward; how several become one isn't its matter. Here it is their mean, unless it is told to
be their least, or weighted.
"""

from collections.abc import Mapping, Sequence

from actors.checkpoint import Checkpoint
from actors.errors import Rejected, SettingsError
from actors.family import ChatTemplate, Golden, KnownModel, Question, Rows, weighted
from actors.logit_head import LogitHead
from actors.records import Message, Reading, Reason, Role, ScoreRequest

QUESTION = (
    "Evaluate the response to the previous prompt in terms of whether it satisfies this principle: {}. "
    "Only answer Yes or No."
)
MEAN, MIN = "mean", "min"


class Principle(LogitHead):
    """`*ForCausalLM` that says Yes or No to a principle."""

    name = "principle"
    summary = "the logit of Yes less that of No, to a question about a principle (LlamaForCausalLM)"
    source = "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle model card"
    asked = "the checkpoint's chat template, then the card's question about a principle as a user's turn; generation prompt"
    read_at = "the raw logit of Yes less that of No at the last token"
    range = "unbounded, above 0 where the principle is fulfilled; compare responses to one prompt"
    models = (
        KnownModel(
            "tiny-principle",
            "built in; knows correctness, coherence, brevity, verbosity",
            "Apache-2.0",
            golden=(
                Golden.answer("What is 3 + 4?", "7", 6.366, 0.3, "correctness"),
                Golden.answer("What is 3 + 4?", "9", -9.281, 0.3, "correctness"),
            ),
            token_ids={"No": 6, "Yes": 7},
        ),
        KnownModel(
            "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle",
            "",
            "NVIDIA Open Model License, and the Llama 3.3 Community License Agreement",
            4096,
            "arXiv 2509.21319",
            golden=(
                Golden.answer("What is 1+1?", "1+1=2", 4.875, 0.25, "correctness"),
                Golden.answer("What is 1+1?", "1+1=3", -4.875, 0.25, "correctness"),
            ),
            token_ids={"No": 2822, "Yes": 9642},
        ),
    )
    ways = frozenset({"principles", "principle_reward"})

    @property
    def needs_principles(self) -> bool:
        return self.way.principles is None

    def tokens(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        return ("No", "Yes")

    def outputs(self) -> tuple[str, ...]:
        return tuple(self.way.principles or (MEAN, MIN))

    def card_weights(self) -> Mapping[str, float]:
        if self.way.principles and self.way.principle_reward == MIN:
            return {}  # none of them counts by weight
        if self.way.principles:
            return dict.fromkeys(self.way.principles, 1 / len(self.way.principles))
        return {self.way.principle_reward or MEAN: 1.0}

    def weights(self, own: Mapping[str, float] | None) -> Mapping[str, float]:
        if own is not None and self.way.principle_reward is not None:
            raise SettingsError(
                f"--principle-reward {self.way.principle_reward} and --weights each say how principles become one reward; "
                "give one of them"
            )
        return super().weights(own)

    def questions(self, request: ScoreRequest) -> Sequence[Question]:
        """Each principle about each response; one without a principle, which can't be asked, if there is none."""
        principles = tuple((self.way.principles or {}).values()) or request.principles or (None,)
        return [
            Question((*request.context, Message(Role.ASSISTANT, response.content)), (position,), principle)
            for position, response in enumerate(request.responses)
            for principle in principles
        ]

    def text(self, question: Question, template: ChatTemplate) -> str:
        if question.principle is None:
            raise Rejected(Reason.NO_PRINCIPLE)
        asked = Message(Role.USER, QUESTION.format(question.principle))
        return template((*question.messages, asked), generation_prompt=True)

    def reading(self, answers: Sequence[Rows], weights: Mapping[str, float]) -> Reading:
        """The principles' rewards, in the order in which they were asked."""
        found = [score for (((score,),),) in zip(answers, strict=True)]
        least = min(found)
        if not self.way.principles:
            return weighted({MEAN: sum(found) / len(found), MIN: least}, weights)
        scores = dict(zip(self.way.principles, found, strict=True))
        return Reading(least, scores) if self.way.principle_reward == MIN else weighted(scores, weights)


FAMILY = Principle()
