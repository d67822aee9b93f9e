"""The vocabulary of what is made of a scored corpus: candidates, and pairs of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from actors.records import Message

SAME_REWARD = 1e-5
"""Rewards that differ by no more are equal: that is how far a reward is repeatable, and less is the last bits of a batch."""


class LabelAgreement(StrEnum):
    """Whether a pair is as the corpus' own label has it: its chosen response the better one."""

    AGREES = "agree"
    DISAGREES = "disagree"
    UNLABELLED = "unlabelled"


class Side(StrEnum):
    """What a corpus says of a response by its name: `chosen`, `rejected[2]`."""

    CHOSEN = "chosen"
    REJECTED = "rejected"


_SIDES = {side.value: side for side in Side}


def labelled(name: str) -> Side | None:
    """The label that a response has by its name, if it has one."""
    return _SIDES.get(name.partition("[")[0])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scored response: the turns before it, its text, and what it came to.

    `row` and `name` say which it is: a row of the corpus, and `final`, `chosen`, `turn[3]`, `candidate[5]` of it. Equal
    `prompt_hash`es are equal prompts. `answer` is what was judged of a text whose reasoning was stripped, if it was.
    """

    row: str
    name: str
    prompt_hash: str
    context: tuple[Message, ...]
    text: str
    reward: float
    scores: Mapping[str, float] = field(default_factory=dict)
    answer: str | None = None

    @property
    def judged_text(self) -> str:
        """What its reward is of, without the white space around it: candidates are alike by this."""
        return (self.text if self.answer is None else self.answer).strip()


class LeftOut(StrEnum):
    """Why a response is no candidate."""

    UNSCORED = "without a reward"
    UNMET = "outside --where"


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two candidates for one prompt, the better one and the worse one. They differ, in reward and in what was judged."""

    chosen: Candidate
    rejected: Candidate

    @property
    def margin(self) -> float:
        """By how much the chosen one's reward is higher. Above `SAME_REWARD`."""
        return self.chosen.reward - self.rejected.reward

    @property
    def agreement(self) -> LabelAgreement:
        """How it goes with the labels. One is only about the responses of its own row."""
        sides = (labelled(self.chosen.name), labelled(self.rejected.name))
        if self.chosen.row != self.rejected.row or set(sides) != set(Side):
            return LabelAgreement.UNLABELLED
        return LabelAgreement.AGREES if sides[0] is Side.CHOSEN else LabelAgreement.DISAGREES

    @property
    def label_margin(self) -> float | None:
        """By how much the reward is higher of the response that the label prefers; below 0 if they disagree."""
        by = {LabelAgreement.AGREES: self.margin, LabelAgreement.DISAGREES: -self.margin}
        return by.get(self.agreement)
