"""What the bodies of all formats have in common: strict fields, and messages that become a request to the core."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from actors.errors import Rejected
from actors.records import Message, Reason, Response, ScoreRequest, Shown
from actors.text.reasoning import with_reasoning
from deploy.errors import BadRequest, no_score_error
from deploy.models.service import Service
from pipelines.formats.content import conversation, final, refuse_answered, text

T = TypeVar("T")

Listed = Annotated[list[T], Field(fail_fast=True)]
"""A list whose first wrong item alone is an error: all of them would take 40 times the bytes of the body."""
_MOST_FIELDS = 256
"""Names in one object. No format has half as many, and each that isn't known is an error."""


class Body(BaseModel):
    """A field that isn't known is an error: what a client asks for is done, or refused, never passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RequestBody(Body):
    """What a client sends. A field that asks for nothing passes, known or not: null, or one of its `neutral` values."""

    neutral: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Of fields that aren't done here, or are done in one way alone: the values with which nothing else is asked for."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_asks_for_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if len(given) > _MOST_FIELDS:
            raise ValueError(f"{len(given)} fields; at most {_MOST_FIELDS}")
        return {name: value for name, value in given.items() if value is not None and not cls._is_neutral(name, value)}

    @classmethod
    def _is_neutral(cls, name: str, value: Any) -> bool:
        return any(value == own and isinstance(value, bool) == isinstance(own, bool) for own in cls.neutral.get(name, ()))


class ChatMessage(BaseModel):
    """A message. Fields of OpenAI's that no reward depends on (`name`, `refusal`) may be there."""

    model_config = ConfigDict(frozen=True, extra="allow")

    role: str
    content: str | Listed[dict[str, Any]] | None = None


Turns = Annotated[Listed[ChatMessage], Field(min_length=1)]


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


def read_score_request(turns: Sequence[ChatMessage], principles: Sequence[str] = ()) -> ScoreRequest:
    """A conversation whose last turn is judged; or, in roles of NVIDIA's judges, whose responses are.

    Raises `Rejected`, or `ApiError` if a turn would be lost.
    """
    first = next((at for at, turn in enumerate(turns) if turn.role in _SHOWN), len(turns))
    said, shown = turns[:first], {turn.role: turn for turn in turns[first:]}
    if len(shown) < len(turns) - first or not shown.keys() <= _SHOWN:  # else one of them would be lost without a word
        raise BadRequest("principle, response_1 and response_2 come after all other turns, each once", "messages")
    given = tuple(text(_content(turn)) for role, turn in shown.items() if role == Shown.PRINCIPLE)
    compared = [shown[role] for role in (Shown.RESPONSE_1, Shown.RESPONSE_2) if role in shown]
    context = conversation([turn.model_dump() for turn in said])
    by = (*given, *principles)
    if compared:
        return ScoreRequest(refuse_answered(context), tuple(Response(turn.role, _response(turn)) for turn in compared), by)
    before, answer = final(context)
    if not before:  # no reward model was trained to judge an answer to nothing
        raise Rejected(Reason.NO_MESSAGES)
    return ScoreRequest(before, (Response("final", answer),), by)


def read_score_request_or_refuse(turns: Sequence[ChatMessage], place: str = "messages") -> ScoreRequest:
    """The same for formats that have no place for a reason. Raises `ApiError`, which names the place."""
    try:
        return read_score_request(turns)
    except Rejected as rejected:
        raise no_score_error(rejected.reason, place) from None


def check_alone(request: ScoreRequest, place: str = "messages") -> ScoreRequest:
    """The request again, for formats whose answer is one number. Raises `ApiError` if it has several responses."""
    if len(request.responses) > 1:
        raise BadRequest("the answer holds one reward, and there are two responses: ask /v1/rewards, or send one", place)
    return request


def document_request(question: str, answer: str, at: int, asked_at: str) -> ScoreRequest:
    """The document of a position as the only response to a question of the user's, which stands at `asked_at`.

    Raises `ApiError`, which names the one at fault.
    """
    turns = [ChatMessage(role="user", content=question), ChatMessage(role="assistant", content=answer)]
    try:
        conversation([turn.model_dump() for turn in turns[:1]])
    except Rejected as rejected:
        raise no_score_error(rejected.reason, asked_at) from None
    return read_score_request_or_refuse(turns, document(at))


def document(at: int) -> str:
    """What the document of a position is called in errors."""
    return f"documents[{at}]"


def request_with_answers(context: Sequence[Message], answers: Sequence[str]) -> ScoreRequest:
    """Several responses to one context, in one request: so they go to one replica, which reads the context once."""
    return ScoreRequest(tuple(context), tuple(Response(f"response[{at}]", one) for at, one in enumerate(answers)))


def _content(turn: ChatMessage) -> object:
    return turn.content


def _response(turn: ChatMessage) -> str:
    """With the reasoning that stands beside it, as in an assistant's turn."""
    return with_reasoning(text(turn.content), turn.model_dump())


_SHOWN = frozenset(role.value for role in Shown)
