"""A language model that says whether a response fulfils a principle: its logit of Yes less that of No.

The question is a user turn after the response, word for word the model card's; the two logits are those of the first token
of the answer. One forward pass for each principle; `actors/contracts/by_principle.py` combines several.
"""

from collections.abc import Mapping, Sequence

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.by_principle import ByPrinciple
from actors.contracts.family import ChatTemplate, Question, Rows
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.logit_head import LogitHead
from actors.errors import Rejected
from actors.records import Message, Reading, Reason, Role, ScoreRequest

QUESTION = (
    "Evaluate the response to the previous prompt in terms of whether it satisfies this principle: {}. "
    "Only answer Yes or No."
)


class Principle(ByPrinciple, LogitHead):
    """`*ForCausalLM` that says Yes or No to a principle."""

    name = "principle"
    summary = "the logit of Yes less that of No, to a question about a principle (LlamaForCausalLM)"
    source = "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle model card"
    prompt_form = (
        "the checkpoint's chat template, then the card's question about a principle as a user's turn; generation prompt"
    )
    read_at = "the raw logit of Yes less that of No at the last token"
    range = "unbounded, above 0 where the principle is fulfilled; compare responses to one prompt"
    models = (
        KnownModel.built_in(
            "tiny-principle",
            Golden.each("What is 3 + 4?", {"7": 6.366, "9": -9.281}, 0.3, "correctness"),
            "knows correctness, coherence, brevity, verbosity",
            token_ids={"No": 6, "Yes": 7},
        ),
        KnownModel(
            "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle",
            "",
            "NVIDIA Open Model License, and the Llama 3.3 Community License Agreement",
            4096,
            "arXiv 2509.21319",
            golden=Golden.each("What is 1+1?", {"1+1=2": 4.875, "1+1=3": -4.875}, 0.25, "correctness"),
            token_ids={"No": 2822, "Yes": 9642},
        ),
    )

    def tokens(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        return ("No", "Yes")

    def outputs(self) -> tuple[str, ...]:
        return self.named()

    def questions(self, request: ScoreRequest, among: Sequence[int]) -> Sequence[Question]:
        principles = tuple((self.way.principles or {}).values()) or request.principles or (None,)
        return [Question.about(request, (position,), principle) for position in among for principle in principles]

    def question_count(self, request: ScoreRequest) -> int:
        return len(request.responses) * (len(self.way.principles or ()) or len(request.principles) or 1)

    def text(self, question: Question, template: ChatTemplate) -> str:
        if question.principle is None:
            raise Rejected(Reason.NO_PRINCIPLE)
        turn = Message(Role.USER, QUESTION.format(question.principle))
        return template((*question.messages, turn), generation_prompt=True)

    def reading(self, answers: Sequence[Rows], weights: Mapping[str, float]) -> Reading:
        return self.combined([score for (((score,),),) in zip(answers, strict=True)], weights)


FAMILY = Principle()
