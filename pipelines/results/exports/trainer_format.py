"""A trainer's format: the rows that it makes of a pair, or of the scored responses of a row, and what it refuses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import SettingsError
from pipelines.folders.scored_corpus.candidates import Candidate, PreferencePair
from pipelines.results.exports.trainer_messages import Refusal

Row = dict[str, Any]  # a line of JSON, its keys in the order of the trainer's own files


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels for single responses: those with a reward of `threshold` or more are desirable, the others aren't."""

    threshold: float | None = None

    def desirable(self, candidate: Candidate) -> bool:
        """Whether a response is desirable. Raises `SettingsError` without a threshold."""
        if self.threshold is None:
            raise SettingsError("--threshold is missing: the reward from which a response is desirable")
        return candidate.reward >= self.threshold


def never(_: Candidate) -> None:
    """The check of a format that refuses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFormat:
    """What every format says of itself; `PairFormat` and `ResponseFormat` say how its rows are made. Picklable.

    `source` is the trainer's code that reads such rows, with its commit. `check` gives the reason why the format can't
    express a response with its context, or None. `reserved` are the names of its columns and of all others that the
    trainer's loader has a use for: no field of the input is carried along under one of these. `calls`: its rows hold calls
    and tools; else responses that use some are left out.
    """

    name: str
    about: str
    source: str
    reserved: tuple[str, ...]
    check: Callable[[Candidate], str | None] = never
    calls: bool = False

    def refuse_response(self, candidate: Candidate) -> str | None:
        """Why a response can't be expressed with its context, or None: it is left out then, and never changed to fit."""
        is_lost = not self.calls and candidate.uses_tools
        return Refusal.TOOL_CALL if is_lost else self.check(candidate)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFormat(TrainerFormat):
    """A format made of pairs.

    `rows` is called only for pairs that aren't refused. The rows of one pair must stay next to each other, in this order:
    where there are two, the trainer tells the better one by its position in the file.
    """

    rows: Callable[[PreferencePair], Iterator[Row]]

    def refuse(self, pair: PreferencePair) -> str | None:
        """Why one of the sides can't be expressed, or None."""
        return self.refuse_response(pair.chosen) or self.refuse_response(pair.rejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFormat(TrainerFormat):
    """A format made of single responses.

    `rows` is called with the candidates of one row of the corpus at a time, in order, without those that `check` refuses.
    `whole` formats hold conversations all of whose assistant turns are trained on. `needs_scores` names the scores that a
    corpus must have.
    """

    rows: Callable[[Sequence[Candidate], Labels], Iterator[Row]]
    needs_threshold: bool = False
    whole: bool = False
    needs_scores: tuple[str, ...] = ()
