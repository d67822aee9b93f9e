"""The result of reading a row: requests to score, and rejected responses. No response of a row may be lost.

A shape names every response of its row and gives a reader for each. `gather` calls them, so that one bad response never
rejects another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from actors.errors import Rejected
from actors.records import Message, Reason, Response, ScoreRequest

Row = Mapping[str, object]

ONLY_RESPONSE = "final"  # the only response of a row, and the one outcome of a row too broken to name any
CANDIDATE = "candidate"  # the response that a policy will generate, of a row that holds a prompt alone
Answer = Message | str  # a response as a row has it: a turn of the assistant's, or its text alone


class Exchange(NamedTuple):
    """A response, and the turns before it."""

    context: tuple[Message, ...]
    answer: Answer


@dataclass(frozen=True, slots=True)
class Unjudgeable:
    """A rejected response of a row, with the reason; `detail` says what was wrong, for a person.

    It stands in the output like any other response, without a reward.
    """

    name: str
    reason: Reason
    detail: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class RowRequests:
    """The responses of a row, as requests or rejections.

    `names` are its responses in row order, at least one and each once; every one of them is either a response of one
    of the `requests` or in `rejected`. `shape` is the shape of the row, if it is one of a mixed corpus.
    """

    names: tuple[str, ...]
    requests: tuple[ScoreRequest, ...]
    rejected: tuple[Unjudgeable, ...]
    shape: str | None = None

    def refused(self, reason: Reason, detail: str = "") -> Self:
        return replace(self, requests=(), rejected=tuple(Unjudgeable(name, reason, detail) for name in self.names))

    @classmethod
    def broken(cls, reason: Reason, detail: str = "") -> Self:
        """A row whose responses can't even be named: one rejected response, named `final`."""
        return cls((ONLY_RESPONSE,), (), (Unjudgeable(ONLY_RESPONSE, reason, detail),))


@dataclass(frozen=True, slots=True)
class Shape:
    """One way in which a row holds a context and its responses.

    `looks_like` decides from keys and types whether a row was meant to have this shape, and never raises. `read` returns
    all responses of the row, or raises `Rejected` if it can't even name them. `read_turns` returns one response per
    assistant turn; only shapes of a single conversation have it. `needs` completes the sentence "rows have ...". `reads` are
    the fields that hold prompt and responses, beside the system prompt's; all others are the row's own, such as its id.
    With `tools` among them the shape reads those, too. `layout` shows a row as it stands in a file, for the reference.
    """

    name: str
    about: str
    needs: str
    looks_like: Callable[[Row], bool]
    read: Callable[[Row], RowRequests]
    read_turns: Callable[[Row], RowRequests] | None = None
    reads: tuple[str, ...] = ()
    layout: str = ""


def response_of(name: str, answer: Answer) -> Response:
    """A response by its name, with the calls of its turn; a text has none."""
    return Response(name, answer) if isinstance(answer, str) else Response(name, answer.content, answer.calls)


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
            rejected.append(Unjudgeable(name, error.reason, error.detail))
            continue
        if not context:
            rejected.append(Unjudgeable(name, Reason.NO_MESSAGES))
            continue
        response = response_of(name, answer)
        # Only neighbours: a comparison with all earlier contexts would make long rows quadratic, and order is kept.
        if groups and groups[-1][0] == context:
            groups[-1][1].append(response)
        else:
            groups.append((context, [response]))
    requests = tuple(ScoreRequest(context, tuple(responses)) for context, responses in groups)
    return RowRequests(tuple(readers), requests, tuple(rejected))


def prompt_request(read: Callable[[], tuple[Message, ...]]) -> RowRequests:
    """A row whose prompt `read` gives, and whose one response isn't there yet.

    `read` may raise `Rejected`; the row's one response, named `candidate`, is rejected then.
    """
    return gather({CANDIDATE: lambda: Exchange(read(), "")})
