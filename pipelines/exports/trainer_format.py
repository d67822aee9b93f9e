"""What a trainer's format is: which rows it makes of a pair, or of the scored responses of a row, and what it refuses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import SettingsError
from pipelines.scored_corpus.candidates import Candidate, PreferencePair

Row = dict[str, Any]
"""What one line of JSON holds. Its keys are in the order in which the trainer's own files have them."""


@dataclass(frozen=True, slots=True)
class Labels:
    """How single responses are labelled: one with a reward of `threshold` or more is desirable, others are not."""

    threshold: float | None = None

    def desirable(self, candidate: Candidate) -> bool:
        """Which side it is. Raises `SettingsError` without a threshold."""
        if self.threshold is None:
            raise SettingsError("which responses are desirable is told by a threshold of the reward: give one")
        return candidate.reward >= self.threshold


def never(_: object) -> None:
    """The check of a format that holds everything."""


@dataclass(frozen=True, slots=True)
class PairFormat:
    """A format made of pairs.

    `rows` is asked only for pairs that `check` gives no reason against. The rows of one pair must stay next to each other,
    in this order: where there are two, the trainer tells the better one by its position in the file.
    """

    name: str
    about: str
    source: str
    rows: Callable[[PreferencePair], Iterator[Row]]
    check: Callable[[PreferencePair], str | None] = never


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A format made of single responses.

    `rows` is asked for the candidates of one row of the corpus at a time, in order, and only for those that `check` gives
    no reason against. `needs_scores` names the scores that a corpus must have.
    """

    name: str
    about: str
    source: str
    rows: Callable[[Sequence[Candidate], Labels], Iterator[Row]]
    check: Callable[[Candidate], str | None] = never
    needs_threshold: bool = False
    needs_scores: tuple[str, ...] = ()
