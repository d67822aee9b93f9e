"""Counts the work of a request before any of it is done, and moves long computations off the event loop."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from actors.contracts.family import Family
from actors.contracts.judge import Judge
from actors.contracts.showings import Shows
from actors.records import ScoreRequest
from actors.scorers.online import Rendered
from actors.text.tool_calls import size_of
from deploy.errors import ApiError
from deploy.settings import LimitSettings

T = TypeVar("T")

# Length of this request's body in bytes; set by `Gate` before the route runs.
body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)
# Work on a shorter body is done on the event loop: starting it in a thread would take about as long as the work.
_SMALL_BYTES = 2**16


# Added per turn: rendering a turn's header costs about as much as 64 characters, even around a single letter.
_TURN_CHARACTERS = 64


class RequestWork(NamedTuple):
    """Prompts that an engine will answer, repetitions included, and the characters in all of them.

    A context that several prompts share counts in each, whatever a prefix cache saves: rendering isn't cached.
    """

    prompts: int
    characters: int


def work_of(family: Family, requests: Sequence[Rendered | ScoreRequest]) -> RequestWork:
    """The largest possible work of requests: all responses, by all principles, in all orders, with all votes.

    Of a prompt as token ids, each id counts as a character.
    """
    works = [
        RequestWork(1, len(request.prompt)) if isinstance(request, Rendered) else _work_of_request(family, request)
        for request in requests
    ]
    return RequestWork(sum(work.prompts for work in works), sum(work.characters for work in works))


def work_of_texts(request: ScoreRequest, texts: int) -> RequestWork:
    """The work of `texts` texts of a judge: a prompt for each, which shows all responses."""
    responses = sum(map(size_of, request.responses))
    return RequestWork(texts, texts * (_common_characters(request) + responses + sum(map(len, request.principles))))


def _common_characters(request: ScoreRequest) -> int:
    """Of what every prompt of a request shows: its context, its fields and its tools."""
    turns = sum(size_of(turn) + _TURN_CHARACTERS for turn in request.context)
    return turns + sum(map(len, (*request.fields.values(), *request.tools)))


def _work_of_request(family: Family, request: ScoreRequest) -> RequestWork:
    # By counts and mean lengths, never by building the prompts: their product is what this protects from.
    count, principles = len(request.responses), len(request.principles)
    prompts = family.question_count(request) * _votes(family)
    shown = {Shows.ONE: 1, Shows.TWO: 2, Shows.ALL: count}[family.shows] if isinstance(family, Judge) else 1
    responses = sum(map(size_of, request.responses)) * shown / max(count, 1)
    principle = sum(map(len, request.principles)) / max(principles, 1)  # mean length: a prompt shows one of them
    return RequestWork(prompts, round(prompts * (_common_characters(request) + responses + principle)))


def _votes(family: Family) -> int:
    """How often a question is put, at the most. Where all responses are shown together, each vote has its own order."""
    if not isinstance(family, Judge):
        return 1
    # `question_count` has two orders of a pair, so each gets half the votes, rounded up; of ALL it has an order per vote.
    return {Shows.ONE: family.votes, Shows.TWO: family.votes - family.votes // 2, Shows.ALL: 1}[family.shows]


class CharacterBudget:
    """Characters of the prompts under way for one model, in this ingress.

    They bound memory: each prompt is tokenized in a process of ours, and held until it is answered.
    """

    def __init__(self) -> None:
        self._characters = 0

    @contextmanager
    def reserve(self, work: RequestWork, limits: LimitSettings) -> Iterator[None]:
        """Count the work for the length of the block.

        Raises `ApiError`: 413 if it is too large, 429 if there is no room now.
        """
        if work.prompts > limits.max_prompts:
            raise ApiError(
                413,
                f"responses, principles, orders and votes come to {work.prompts} prompts; at most {limits.max_prompts} in "
                "one request: send several requests",
                code="too_many_prompts",
            )
        if work.characters > limits.max_characters:
            raise ApiError(
                413,
                f"the prompts of this request would have {work.characters} characters together, its conversation counted in "
                f"each; at most {limits.max_characters}: send fewer responses or principles at a time",
                code="too_many_characters",
            )
        # A request alone always gets in, also where the limit for all is set below the limit for one.
        if self._characters and self._characters + work.characters > limits.max_characters_under_way:
            raise ApiError(
                429,
                f"prompts of {self._characters} characters are under way already; with this request there would be more "
                f"than {limits.max_characters_under_way}",
                code="overloaded",
                retry_after_s=1,
            )
        self._characters += work.characters
        try:
            yield
        finally:
            self._characters -= work.characters


async def off_loop(work: Callable[[], T]) -> T:
    """The result of `work`, whose time grows with the body: for a long body in a thread, so that the loop serves others."""
    return work() if body_bytes.get() < _SMALL_BYTES else await asyncio.to_thread(work)
