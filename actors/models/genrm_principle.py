"""Qwen3-Nemotron-32B-GenRM-Principle reasons, then says Yes or No to a principle; the reward is how sure it is.

The conversation ends with the response, and the principle is a last turn of its own role. The reward is the log-probability
of " Yes" less that of " No" where the judge gave its final judgement, each at least -50. The card subtracts the highest
logit instead of the logarithm of their sum, which differs only where the -50 acts. Its example samples with the checkpoint's
settings, and reads logits after temperature; here, as the card says of vLLM, the text is greedy, before any temperature.
"""

from collections.abc import Mapping, Sequence
from random import Random

from actors.contracts.by_principle import ByPrinciple
from actors.contracts.family import ChatTemplate, Question
from actors.contracts.judge import Judge, Judgement, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Rejected
from actors.records import JudgeRole, Message, Reading, Reason
from actors.verdicts.verdict_token import difference

MARKER = "Final Judgement:"
_NUMBER = "difference"


class GenrmPrinciple(ByPrinciple, Judge):
    """A language model with a role for principles."""

    name = "genrm-principle"
    summary = "writes, then says Yes or No to a principle (Qwen3ForCausalLM with the role `principle`)"
    source = "nvidia/Qwen3-Nemotron-32B-GenRM-Principle model card"
    prompt_form = "its chat template, with a last turn of the role `principle`, and a generation prompt"
    read_at = "log-probability of ' Yes' less that of ' No' after 'Final Judgement:', each at least -50"
    range = "-50 to 50, above 0 where the principle is fulfilled"
    marks = (" Yes", " No")
    delimiters = tuple(MARKER + mark for mark in marks)
    shows = Shows.ONE
    card = Sampling(max_tokens=16000)
    models = (
        KnownModel.built_in(
            "tiny-genrm-principle",
            Golden.each("What is 3 + 4?", {"7": 4.0, "9": -4.0}, 3.0, "correctness"),
            "knows correctness, brevity, verbosity",
        ),
        KnownModel(
            "nvidia/Qwen3-Nemotron-32B-GenRM-Principle",
            "",
            "NVIDIA Open Model License",
            8192,
            "arXiv 2509.21319",
            # The card prints no numbers; of its example the signs are certain.
            golden=Golden.each("What is 1+1?", {"1+1=2": 25.0, "1+1=3": -25.0}, 25.0, "correctness"),
            token_ids={" Yes": 7414, " No": 2308},
        ),
    )

    def text_outputs(self) -> tuple[str, ...]:
        return self.named()

    def text(self, question: Question, template: ChatTemplate) -> str:
        if question.principle is None:
            raise Rejected(Reason.NO_PRINCIPLE)
        return template((*question.messages, Message(JudgeRole.PRINCIPLE, question.principle)), generation_prompt=True)

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        return Verdict(({_NUMBER: difference(generation, MARKER, self.marks, self.verdict_ids)},))

    def vote(self, scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
        return scores[_NUMBER]

    def is_complete(self, scores: Mapping[str, float], weights: Mapping[str, float]) -> bool:
        return True  # each text is about one principle, and the reward of all

    def ballots(self, about: Sequence[Judgement], at: int, weights: Mapping[str, float]) -> list[list[Reading]]:
        """One reading for the n-th verdicts of all principles together.

        A principle with more readable verdicts than another has its last ones left out.
        """
        # A list per principle, and from here on one per vote. Not strict: a reward needs a number for each principle.
        numbers = [[verdict.scores[0][_NUMBER] for verdict in judgement.verdicts] for judgement in about]
        return [[self.combined(vote, weights) for vote in zip(*numbers, strict=False)]]

    def made_up(self, rng: Random, shown: int) -> Verdict:
        return Verdict(({_NUMBER: rng.uniform(-5, 5)},))


FAMILY = GenrmPrinciple()
