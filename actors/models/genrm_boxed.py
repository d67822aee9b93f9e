r"""Llama-3.3-Nemotron-Super-49B-GenRM and -Multilingual: grades of one response or two in boxes, and a ranking of two.

The conversation ends with the user's turn; the responses follow in roles of their own. After the reasoning come two marked
blocks: a `\boxed{}` with a grade from 1 to 5 for each response, and one with the ranking, from 1 (the first is much better)
to 6. No ranking is neutral, so it decides between equal grades: `margin` is 3.5 less the ranking for the first response, and
the ranking less 3.5 for the second.
"""

import re
from collections.abc import Mapping

from actors.contracts.family import ChatTemplate, Question
from actors.contracts.judge import Judge, Verdict
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.showings import Shows
from actors.engine.protocol import Generation, Sampling
from actors.errors import Unreadable
from actors.records import JudgeRole, Message, Reason, Reasoning, Role
from actors.verdicts.parsing import between, number, the_only
from actors.verdicts.statements import Claim, check_agrees, grades_of
from actors.verdicts.whole_numbers import check_whole

GRADES = (1.0, 5.0)
RANKINGS = (1.0, 6.0)
EVEN = 3.5
BOUNDS = {"score": GRADES, "margin": (EVEN - RANKINGS[1], EVEN - RANKINGS[0])}
_GRADES, _RANKING = "Individual Scores", "Ranking Score"
DELIMITERS = tuple(f"[The {edge} of Response {at}]" for at in (1, 2) for edge in ("Begin", "End"))
"""Delimiters of NVIDIA's prompt for these judges, in addition to those of a checkpoint's template."""
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


class GenrmBoxed(Judge):
    """A language model with roles for responses, that answers in boxes."""

    name = "genrm-boxed"
    summary = "writes, then grades one response or two in boxes, and ranks two (roles `response_1`, `response_2`)"
    source = "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM-Multilingual model card"
    asked = "its chat template, with the roles `response_1` and `response_2` after the user's last turn; generation prompt"
    read_at = r"\boxed{} after </think>: a grade for each response, and a ranking"
    range = "grades 1 to 5, ranking 1 (the first is much better) to 6"
    gives = ("score", "margin")
    order_matters = True
    relative = frozenset({"margin"})
    delimiters = (*DELIMITERS, *(f"[The {edge} of {what}]" for what in (_GRADES, _RANKING) for edge in ("Begin", "End")))
    reasoning = Reasoning.STRIP  # NVIDIA's environment for it judges what follows the last </think>
    shows = Shows.TWO
    alone = True
    card = Sampling(max_tokens=32768)
    models = (
        KnownModel.built_in(
            "tiny-genrm", (Golden.answers((Message(Role.USER, "What is 3 + 4?"),), {"7": 5.0, "9": 2.0}, 0.1),)
        ),
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

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        return BOUNDS

    def register(self) -> None:
        import actors.checkpoint.nemotron_nas_config  # noqa: F401  registers itself, and is seconds of import

    def text(self, question: Question, template: ChatTemplate) -> str:
        shown = (Message(role, response) for role, response in zip(ROLES, question.responses, strict=False))
        return template((*question.context, *shown), generation_prompt=True)

    def read_answer(self, generation: Generation, shown: int) -> Verdict:
        remainder, grades = _read_boxes(generation.text, _GRADES, shown, *GRADES)
        if shown == 1:
            return graded(remainder, grades)
        remainder, (ranking,) = _read_boxes(remainder, _RANKING, 1, *RANKINGS)
        return graded(remainder, grades, ranking)


def _read_boxes(text: str, what: str, count: int, low: float, high: float) -> tuple[str, tuple[float, ...]]:
    """The text without the box of a block, and the `count` numbers in it. Raises `Unreadable`, also if two boxes differ."""
    block = between(text, f"[The Begin of {what}]", f"[The End of {what}]")
    boxes = []
    for box in _BOX.finditer(block):
        check_whole(block, box.span(), high)
        boxes.append((box[1] or "").split(","))
    if any(len(box) != count for box in boxes):
        raise Unreadable(Reason.NO_VERDICT)
    numbers = the_only(tuple(number(text, low, high) for text in box) for box in boxes)
    return text.replace(block, _BOX.sub("READ", block)), numbers


FAMILY = GenrmBoxed()
