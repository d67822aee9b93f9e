"""A trainer's format: the rows that it makes of a pair, or of the scored responses of a row, and what it refuses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from actors.errors import SettingsError
from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair

Row = dict[str, Any]
"""One line of JSON, its keys in the order of the trainer's own files."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels for single responses: those with a reward of `threshold` or more are desirable, the others aren't."""

    threshold: float | None = None

    def desirable(self, candidate: Candidate) -> bool:
        """Whether a response is desirable. Raises `SettingsError` without a threshold."""
        if self.threshold is None:
            raise SettingsError("--threshold is missing: the reward from which a response is desirable")
        return candidate.reward >= self.threshold


def never(_: object) -> None:
    """The check of a format that refuses nothing."""


@dataclass(frozen=True, slots=True)
class PairFormat:
    """A format made of pairs.

    `check` returns a reason to refuse a pair, or None; `rows` is called only for pairs that aren't refused. The rows of one
    pair must stay next to each other, in this order: where there are two, the trainer tells the better one by its position
    in the file. `reserved` are the names of its columns and of all others that the trainer's
    loader has a use for: no field of the input is carried along under one of these.
    """

    name: str
    about: str
    source: str
    rows: Callable[[PreferencePair], Iterator[Row]]
    check: Callable[[PreferencePair], str | None] = never
    reserved: tuple[str, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A format made of single responses.

    `rows` is called with the candidates of one row of the corpus at a time, in order, without those that `check` refuses.
    `whole` formats hold conversations all of whose assistant turns are trained on. `needs_scores` names the scores that a
    corpus must have. `reserved` is as in `PairFormat`.
    """

    name: str
    about: str
    source: str
    rows: Callable[[Sequence[Candidate], Labels], Iterator[Row]]
    check: Callable[[Candidate], str | None] = never
    needs_threshold: bool = False
    whole: bool = False
    needs_scores: tuple[str, ...] = ()
    reserved: tuple[str, ...] = field(kw_only=True)
