r"""NVIDIA's judges of two, from Llama-3.3-Nemotron-Super-49B-GenRM to the Nemotron 3 ones: grades, and a ranking.

The conversation ends with the user's turn; the responses follow in roles of their own, and before them, for those that take
one, the principle. After the reasoning come a grade from 1 to 5 for each response, and the ranking, from 1 (the first is
much better) to 6. No ranking is neutral, so it decides between equal grades: `margin` is 3.5 less the ranking for the first
response, and the ranking less 3.5 for the second.

The older ones write both in `\boxed{}`, in marked blocks, and also grade a response alone. The newer ones write an object
with `score_1`, `score_2` and `ranking`, maybe fenced, maybe under `overall`. NeMo-Gym makes 3, 3 and 3.5 of what it can't
read; here that is a failure.
"""

import re
from collections.abc import Mapping
from typing import Any

from actors.contracts.family import ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Unreadable
from actors.records import JudgeRole, Message, Reason, Reasoning, Role
from actors.verdicts.parsing import between, number, objects, the_only
from actors.verdicts.statements import Claim, check_agrees, grades_of
from actors.verdicts.whole_numbers import check_whole

GRADES = (1.0, 5.0)
RANKINGS = (1.0, 6.0)
EVEN = 3.5  # between 3 (the first is slightly better) and 4: no ranking is a tie
BOUNDS = {"score": GRADES, "margin": (EVEN - RANKINGS[1], EVEN - RANKINGS[0])}
_KEYS = ("score_1", "score_2", "ranking")
_GRADES, _RANKING = "Individual Scores", "Ranking Score"
# Delimiters of NVIDIA's prompt for these judges, in addition to those of a checkpoint's template.
DELIMITERS = tuple(f"[The {edge} of Response {at}]" for at in (1, 2) for edge in ("Begin", "End"))
ROLES = (JudgeRole.RESPONSE_1, JudgeRole.RESPONSE_2)
_BOX = re.compile(r"\\boxed(?:\{([^{}]*)\})?")  # what holds more than numbers is a box too, and unreadable
_CARD = (
    Message(Role.USER, "What is 1+1?"),
    Message(Role.ASSISTANT, "1+1=2"),
    Message(Role.USER, "What about 1+2?"),
)


def graded(rest: str, grades: tuple[float, ...], ranking: float | None = None) -> Verdict:
    """The verdict of grades, and of a ranking of two. Raises `Unreadable` if the rest of the text states another."""
    claims = grades_of(grades, [rf"score[\W_]?{position}" for position in range(1, len(grades) + 1)])
    if ranking is None:
        check_agrees(rest, claims)
        return Verdict(tuple({"score": grade} for grade in grades))
    margins = (EVEN - ranking, ranking - EVEN)
    claims += [Claim(r"ranking(?:[\W_]{1,8}score)?", (ranking,)), Claim("", (*grades, ranking), alone=True)]
    check_agrees(rest, claims, margins)
    scores = tuple({"score": grade, "margin": margin} for grade, margin in zip(grades, margins, strict=True))
    return Verdict(scores, margins)


class Genrm(Judge):
    """A judge of NVIDIA's that grades two responses, shown in roles of their own, and ranks them."""

    range = "grades 1 to 5, ranking 1 (the first is much better) to 6"
    gives = ("score", "margin")
    order_matters = True
    relative = frozenset({"margin"})
    reasoning = Reasoning.STRIP  # NVIDIA's environments judge what follows the last </think>, and no reasoning items
    shows = Shows.TWO
    bounds = BOUNDS

    def text(self, question: Question, template: ChatTemplate) -> str:
        principle = () if question.principle is None else (Message(JudgeRole.PRINCIPLE, question.principle),)
        # Not strict: a family that also judges one response alone shows it in the first role.
        shown = (Message(role, response) for role, response in zip(ROLES, question.responses, strict=False))
        return template((*question.context, *principle, *shown), generation_prompt=True)


class GenrmBoxed(Genrm):
    """A language model with roles for responses, that answers in boxes."""

    name = "genrm-boxed"
    summary = "writes, then grades one response or two in boxes, and ranks two (roles `response_1`, `response_2`)"
    source = "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM-Multilingual model card"
    prompt_form = (
        "its chat template, with the roles `response_1` and `response_2` after the user's last turn; generation prompt"
    )
    read_at = r"\boxed{} after </think>: a grade for each response, and a ranking"
    delimiters = (*DELIMITERS, *(f"[The {edge} of {what}]" for what in (_GRADES, _RANKING) for edge in ("Begin", "End")))
    alone = True
    card = Sampling(max_tokens=32768)
    models = (
        KnownModel.built_in("tiny-genrm", (Golden.answers("What is 3 + 4?", {"7": 5.0, "9": 2.0}, 0.1),)),
        KnownModel(
            "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM*",
            "English, and -Multilingual",
            "NVIDIA Open Model License, and the Llama 3.3 Community License Agreement",
            card="arXiv 2505.11475",
            golden=(
                Golden.answers(_CARD, {"1+2=4": 1.0}, 1.0),
                Golden.answers(_CARD, {"1+2=4": 1.0, "1+2=3": 5.0}, 1.0),
            ),
        ),
    )

    def register(self) -> None:
        import actors.checkpoint.nemotron_nas_config  # noqa: F401  registers itself, and is seconds of import

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        remainder, grades = _read_boxes(generation.text, _GRADES, shown, *GRADES)
        if shown == 1:
            return graded(remainder, grades)
        remainder, (ranking,) = _read_boxes(remainder, _RANKING, 1, *RANKINGS)
        return graded(remainder, grades, ranking)


class GenrmJson(Genrm):
    """A language model with roles for responses, that answers in JSON."""

    name = "genrm-json"
    summary = "writes, then grades and ranks two responses as JSON (roles `principle`, `response_1`, `response_2`)"
    source = "NeMo-Gym, genrm_compare; nvidia/Qwen3-Nemotron-235B-A22B-GenRM-2603 model card"
    prompt_form = (
        "its chat template, with `principle` (where there is one), `response_1`, `response_2` last; generation prompt"
    )
    read_at = "JSON after the reasoning: score_1, score_2, ranking"
    delimiters = DELIMITERS
    card = Sampling(max_tokens=16384, temperature=0.6, top_p=0.95)
    opens_reasoning = True
    ways = frozenset({"principles"})
    models = (
        KnownModel.built_in(
            "tiny-genrm-json",
            (Golden.answers("What is 3 + 4?", {"7": 5.0, "9": 2.0}, 0.1),),
            "knows correctness, brevity, verbosity, and what is better without a principle",
        ),
        KnownModel("nvidia/Qwen3-Nemotron-235B-A22B-GenRM", "takes no principle", takes_principles=False),
        KnownModel("nvidia/Qwen3-Nemotron-235B-A22B-GenRM-2603", "with a principle or without"),
        KnownModel("nvidia/*Nemotron-3-*GenRM*", "with a principle or without"),
    )

    def shown(self, question: Question) -> tuple[str, ...]:
        responses = map(str.strip, question.responses)
        return (*responses,) if question.principle is None else (question.principle.strip(), *responses)

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        blocks, remainder = objects(generation.text, *_KEYS, under=("overall",))
        first, second, ranking = the_only(map(_read_block, blocks))
        return graded(remainder, (first, second), ranking)


def _read_boxes(text: str, what: str, count: int, low: float, high: float) -> tuple[str, tuple[float, ...]]:
    """The text without the box of a block, and the `count` numbers in it. Raises `Unreadable`, also if two boxes differ."""
    block = between(text, f"[The Begin of {what}]", f"[The End of {what}]")
    # Every box counts, and all must say the same: the first or the last alone may be quoted from a response.
    boxes = []
    for box in _BOX.finditer(block):
        check_whole(block, box.span(), high)
        boxes.append((box[1] or "").split(","))
    if any(len(box) != count for box in boxes):
        raise Unreadable(Reason.NO_VERDICT)
    numbers = the_only(tuple(number(text, low, high) for text in box) for box in boxes)
    # Without what was read here, since the rest of the text is searched for what contradicts it.
    return text.replace(block, _BOX.sub("READ", block)), numbers


def _read_block(block: Mapping[str, Any]) -> tuple[float, float, float]:
    # An object with one of the keys must have all three: what lacks one is a draft, or quoted.
    first, second, ranking = map(block.get, _KEYS)
    return number(first, *GRADES), number(second, *GRADES), number(ranking, *RANKINGS)


FAMILY = (GenrmBoxed(), GenrmJson())
