"""The vocabulary of what is made of a scored corpus: candidates, and pairs of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from actors.records import Message


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scored response: the turns before it, its text, and what it came to.

    `row` and `name` say which it is: a row of the corpus, and `final`, `chosen`, `turn[3]`, `candidate[5]` of it. Equal
    `prompt_hash`es are equal prompts.
    """

    row: str
    name: str
    prompt_hash: str
    context: tuple[Message, ...]
    text: str
    reward: float
    scores: Mapping[str, float] = field(default_factory=dict)


class LeftOut(StrEnum):
    """Why a response is no candidate."""

    UNSCORED = "without a reward"
    UNMET = "outside --where"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two candidates for one prompt, the better one and the worse one. They differ, in reward and in text."""

    chosen: Candidate
    rejected: Candidate

    @property
    def margin(self) -> float:
        """By how much the chosen one's reward is higher. Above 0."""
        return self.chosen.reward - self.rejected.reward
