"""The calls that an endpoint makes of a model, as picklable values that travel from a route to a replica.

A further call needs a method of `OnlineScorer`, a class here, and its accounting in `deploy.models.service`.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from actors.engine.protocol import Sampling
from actors.records import ScoreRequest
from actors.scorers.online import JudgeText, OnlineScorer, RawOutputs, Refused, Rendered, RequestScores

T_co = TypeVar("T_co", covariant=True)


class Call(Protocol[T_co]):
    """A question to a model, picklable, with the type of its answer."""

    def run(self, scorer: OnlineScorer) -> Awaitable[T_co]:
        """Ask it. Raises what the scorer's method raises."""


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """One score for each response of each request."""

    requests: Sequence[ScoreRequest]

    def run(self, scorer: OnlineScorer) -> Awaitable[list[RequestScores]]:
        """See `Call.run`."""
        return scorer.score(self.requests)


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A head's raw outputs for each prompt."""

    prompts: Sequence[Rendered | ScoreRequest]

    def run(self, scorer: OnlineScorer) -> Awaitable[list[RawOutputs]]:
        """See `Call.run`."""
        return scorer.read(self.prompts)


@dataclass(frozen=True, slots=True)
class WriteCall:
    """A judge's texts about all responses of a request."""

    request: ScoreRequest
    sampling: Sampling

    def run(self, scorer: OnlineScorer) -> Awaitable[list[JudgeText] | Refused]:
        """See `Call.run`."""
        return scorer.write(self.request, self.sampling)
