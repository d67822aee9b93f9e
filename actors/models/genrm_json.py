"""NVIDIA's newer judges of two, from Qwen3-Nemotron-235B-A22B-GenRM to the Nemotron 3 ones: grades and a ranking as JSON.

The responses come in roles of their own after the user's turn, and before them, for those that take one, the principle.
After the reasoning stands an object with `score_1` and `score_2`, from 1 to 5, and `ranking`, from 1 (the first is much
better) to 6; maybe fenced, maybe under `overall`. NeMo-Gym makes 3, 3 and 3.5 of what it can't read; here that is a failure.
"""

from collections.abc import Mapping
from typing import Any

from actors.contracts.family import ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.models.genrm_boxed import BOUNDS, DELIMITERS, GRADES, RANKINGS, ROLES, graded
from actors.records import JudgeRole, Message, Reasoning, Role
from actors.verdicts.parsing import number, objects, the_only

_KEYS = ("score_1", "score_2", "ranking")


class GenrmJson(Judge):
    """A language model with roles for responses, that answers in JSON."""

    name = "genrm-json"
    summary = "writes, then grades and ranks two responses as JSON (roles `principle`, `response_1`, `response_2`)"
    source = "NeMo-Gym, genrm_compare; nvidia/Qwen3-Nemotron-235B-A22B-GenRM-2603 model card"
    asked = "its chat template, with `principle` (where there is one), `response_1`, `response_2` last; generation prompt"
    read_at = "JSON after the reasoning: score_1, score_2, ranking"
    range = "grades 1 to 5, ranking 1 (the first is much better) to 6"
    gives = ("score", "margin")
    order_matters = True
    relative = frozenset({"margin"})
    delimiters = DELIMITERS
    reasoning = Reasoning.STRIP  # NeMo-Gym shows the messages of a response, and not its reasoning items
    shows = Shows.TWO
    card = Sampling(max_tokens=16384, temperature=0.6, top_p=0.95)
    opens_reasoning = True
    ways = frozenset({"principles"})
    models = (
        KnownModel.built_in(
            "tiny-genrm-json",
            (Golden.answers((Message(Role.USER, "What is 3 + 4?"),), {"7": 5.0, "9": 2.0}, 0.1),),
            "knows correctness, brevity, verbosity, and what is better without a principle",
        ),
        KnownModel("nvidia/Qwen3-Nemotron-235B-A22B-GenRM", "takes no principle", takes_principles=False),
        KnownModel("nvidia/Qwen3-Nemotron-235B-A22B-GenRM-2603", "with a principle or without"),
        KnownModel("nvidia/*Nemotron-3-*GenRM*", "with a principle or without"),
    )

    def shown(self, question: Question) -> tuple[str, ...]:
        responses = map(str.strip, question.responses)
        return (*responses,) if question.principle is None else (question.principle.strip(), *responses)

    def text(self, question: Question, template: ChatTemplate) -> str:
        principle = () if question.principle is None else (Message(JudgeRole.PRINCIPLE, question.principle),)
        shown = (Message(role, response) for role, response in zip(ROLES, question.responses, strict=True))
        return template((*question.context, *principle, *shown), generation_prompt=True)

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        return BOUNDS

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        blocks, remainder = objects(generation.text, *_KEYS, under=("overall",))
        first, second, ranking = the_only(map(_read_block, blocks))
        return graded(remainder, (first, second), ranking)


def _read_block(block: Mapping[str, Any]) -> tuple[float, float, float]:
    """The two grades and the ranking in an object that has one of the keys: then it must have all three."""
    first, second, ranking = map(block.get, _KEYS)
    return number(first, *GRADES), number(second, *GRADES), number(ranking, *RANKINGS)


FAMILY = GenrmJson()
