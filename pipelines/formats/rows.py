"""What a row becomes: requests to score, and the responses that can't be judged. No response of a row may vanish.

A shape names every response of its row and says how to read each; `gather` does the rest, so that one bad response
never takes another with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from actors.errors import Rejected
from actors.records import Message, Reason, Response, ScoreRequest

Row = Mapping[str, object]

ONLY_RESPONSE = "final"
"""The name of the only response of a row, and of the one outcome of a row too broken to name any."""


def response_keys(row: Row, single: str, sides: Mapping[str, str]) -> dict[str, str]:
    """Names and keys of a row's responses: the single one, named `final`, or the sides, or all if it has all."""
    sided = any(key in row for key in sides.values())
    only = {ONLY_RESPONSE: single} if single in row or not sided else {}
    return {**only, **sides} if sided else only


class Exchange(NamedTuple):
    """A response, and the turns that it answers."""

    context: tuple[Message, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Unjudgeable:
    """A response of the row that can't be judged as it is."""

    name: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class RowRequests:
    """All that a row asks for.

    `names` are its responses in row order, at least one and each once; every one of them is either a response of one
    of the `requests` or in `rejected`.
    """

    names: tuple[str, ...]
    requests: tuple[ScoreRequest, ...]
    rejected: tuple[Unjudgeable, ...]

    @classmethod
    def broken(cls, reason: Reason) -> Self:
        """A row that tells not even what its responses are called: one outcome, named `final`."""
        return cls((ONLY_RESPONSE,), (), (Unjudgeable(ONLY_RESPONSE, reason),))


def gather(readers: Mapping[str, Callable[[], Exchange]]) -> RowRequests:
    """Read each response, by name; a reader raises `Rejected` for its own response only.

    Neighbours with equal contexts share a request. A response to nothing at all is rejected as `no_messages`: no
    reward model was trained to judge one.
    """
    groups: list[tuple[tuple[Message, ...], list[Response]]] = []
    rejected: list[Unjudgeable] = []
    for name, read in readers.items():
        try:
            context, answer = read()
        except Rejected as error:
            rejected.append(Unjudgeable(name, error.reason))
            continue
        if not context:
            rejected.append(Unjudgeable(name, Reason.NO_MESSAGES))
        elif groups and groups[-1][0] == context:
            groups[-1][1].append(Response(name, answer))
        else:
            groups.append((context, [Response(name, answer)]))
    requests = tuple(ScoreRequest(context, tuple(responses)) for context, responses in groups)
    return RowRequests(tuple(readers), requests, tuple(rejected))
