"""How much work a request is, counted before any of it is done, and where that is done that grows with a request's body."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from actors.contracts.family import Family
from actors.contracts.judge import Judge, Shows
from actors.records import ScoreRequest
from actors.scorers.online import Rendered
from deploy.errors import ApiError
from deploy.settings import LimitSettings

T = TypeVar("T")

body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)
"""How long the body of this request is."""
_SMALL_BYTES = 2**16
"""What is done with a shorter body is done before another thread would have begun."""


_TURN_CHARACTERS = 64
"""What a turn counts beside its text: the template's loop and its header cost that much, also around a single letter."""


class RequestWork(NamedTuple):
    """Prompts that an engine will answer, each as often as it is asked, and the characters in all of them.

    What several share counts in each.
    """

    prompts: int
    characters: int


def work_of(family: Family, asked: Sequence[Rendered | ScoreRequest]) -> RequestWork:
    """What requests come to at the most: their responses, by all principles, in all orders, with all votes."""
    each = [RequestWork(1, len(one.prompt)) if isinstance(one, Rendered) else _of_request(family, one) for one in asked]
    return RequestWork(sum(one.prompts for one in each), sum(one.characters for one in each))


def work_of_texts(request: ScoreRequest, texts: int) -> RequestWork:
    """What a judge's own texts come to: one prompt, which shows all responses, for each of them."""
    responses = sum(len(response.content) for response in request.responses)
    return RequestWork(texts, texts * (_of_context(request) + responses + sum(map(len, request.principles))))


def _of_context(request: ScoreRequest) -> int:
    return sum(len(turn.content) + _TURN_CHARACTERS for turn in request.context)


def _of_request(family: Family, request: ScoreRequest) -> RequestWork:
    count, principles = len(request.responses), len(request.principles)
    prompts = family.question_count(count, principles) * _votes(family)
    shown = {Shows.ONE: 1, Shows.TWO: 2, Shows.ALL: count}[family.shows] if isinstance(family, Judge) else 1
    responses = sum(len(response.content) for response in request.responses) * shown / max(count, 1)
    by = sum(map(len, request.principles)) / max(principles, 1)
    return RequestWork(prompts, round(prompts * (_of_context(request) + responses + by)))


def _votes(family: Family) -> int:
    """How often a question is put, at the most. Where all responses are shown together, each vote has its own order."""
    if not isinstance(family, Judge):
        return 1
    return {Shows.ONE: family.votes, Shows.TWO: family.votes - family.votes // 2, Shows.ALL: 1}[family.shows]


class CharacterBudget:
    """The characters of prompts that are under way for one model."""

    def __init__(self) -> None:
        self._characters = 0

    @contextmanager
    def held(self, work: RequestWork, limits: LimitSettings) -> Iterator[None]:
        """Count the work for the length of the block. Raises `ApiError` if there is no room for it, now or ever."""
        if work.prompts > limits.max_prompts:
            raise ApiError(
                413,
                f"responses, principles, orders and votes come to {work.prompts} prompts; at most {limits.max_prompts} in "
                "one request: send several requests",
                code="too_many_prompts",
            )
        check_characters(work.characters, limits)
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


def check_characters(characters: int, limits: LimitSettings) -> None:
    """Raise `ApiError` for longer prompts, all together, than one request may come to."""
    if characters > limits.max_characters:
        raise ApiError(
            413,
            f"the prompts of this request would have {characters} characters together, its conversation counted in each; at "
            f"most {limits.max_characters}: send fewer responses or principles at a time",
            code="too_many_characters",
        )


async def off_loop(work: Callable[[], T]) -> T:
    """The result of work that grows with the body; of a long one in another thread, so that others are answered."""
    return work() if body_bytes.get() < _SMALL_BYTES else await asyncio.to_thread(work)
