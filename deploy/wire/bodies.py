"""What the bodies of all formats share: strict fields, and the conversion of messages into a request to the core."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from actors.errors import Rejected
from actors.records import JudgeRole, Reason, Response, Role, ScoreRequest
from deploy.errors import BadRequest, no_score_error
from deploy.models.service import Service
from pipelines.data.formats.calls import read_tool
from pipelines.data.formats.content import answer, conversation, final, refuse_answered, text
from pipelines.data.formats.rows import Answer, response_of

T = TypeVar("T")

# A list that reports its first wrong item alone: errors for all items would take 40 times the bytes of the body.
Listed = Annotated[list[T], Field(fail_fast=True)]
_MOST_FIELDS = 256  # in one object; no format has half as many names, and pydantic makes an error of each unknown one

_SHOWN = frozenset(role.value for role in JudgeRole)  # turns that hold what is judged, and by what


class Body(BaseModel):
    """An unknown field is an error: what a client asks for is done or refused, never ignored.

    No number may be NaN or infinite, in an answer either: JSON has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RequestBody(Body):
    """What a client sends. Null, and the `neutral` values of a field, are accepted for known and unknown fields.

    Clients send defaults of fields that a server need not know.
    """

    # Per field that isn't supported, or in one way only: the values that ask for nothing beyond that.
    neutral: ClassVar[Mapping[str, Sequence[Any]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral_fields(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        if len(body) > _MOST_FIELDS:
            raise ValueError(f"{len(body)} fields; at most {_MOST_FIELDS}")
        return {name: value for name, value in body.items() if value is not None and not cls._is_neutral(name, value)}

    @classmethod
    def _is_neutral(cls, name: str, value: Any) -> bool:
        # False == 0 in Python: `0` for a flag, or `false` for a number, isn't neutral but a mistake.
        return any(
            value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
            for neutral in cls.neutral.get(name, ())
        )


class ClientBody(RequestBody):
    """A body in the format of OpenAI's clients.

    These fields say who asks, or how a provider would file it: no answer depends on them, and nothing is stored.
    """

    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    request_id: str | None = None
    store: bool | None = None
    service_tier: str | None = None
    metadata: dict[str, Any] | None = None


class ChatMessage(BaseModel):
    """A message. Further fields, such as OpenAI's `name` and `refusal`, are accepted: no reward depends on them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    role: str
    content: str | Listed[dict[str, Any]] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """All fields, as they came. `model_dump` would copy them, however deep they are."""
        return {"role": self.role, "content": self.content, **(self.model_extra or {})}


Turns = Annotated[Listed[ChatMessage], Field(min_length=1)]
Tools = Listed[dict[str, Any]]  # as OpenAI's: {"type": "function", "function": {"name": ..., "parameters": schema}}


async def _service(request: Request) -> Service:  # a coroutine: FastAPI would run a plain function in a thread
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


def read_score_request(
    turns: Sequence[ChatMessage], principles: Sequence[str] = (), tools: Sequence[Mapping[str, Any]] = ()
) -> ScoreRequest:
    """The request for a conversation whose last turn is judged, or whose `response_1` and `response_2` are (NVIDIA's roles).

    Raises `Rejected`, or `ApiError` if a turn would be ignored.
    """
    # Roles of judges end a conversation: from the first of them on, nothing else may come.
    first = next((position for position, turn in enumerate(turns) if turn.role in _SHOWN), len(turns))
    spoken, shown = turns[:first], {turn.role: turn for turn in turns[first:]}
    # A role that comes twice, or another role among these, would be ignored silently.
    if len(shown) < len(turns) - first or not shown.keys() <= _SHOWN:
        raise BadRequest("principle, response_1 and response_2 come after all other turns, each once", "messages")
    in_turns = tuple(text(turn.content) for role, turn in shown.items() if role == JudgeRole.PRINCIPLE)
    compared = [shown[role] for role in (JudgeRole.RESPONSE_1, JudgeRole.RESPONSE_2) if role in shown]
    context = conversation([turn.fields for turn in spoken])
    judged_by, tool_texts = (*in_turns, *principles), tuple(map(read_tool, tools))
    if compared:
        return ScoreRequest(
            refuse_answered(context),
            tuple(response_of(turn.role, as_answer(turn)) for turn in compared),
            judged_by,
            tools=tool_texts,
        )
    before, response = final(context)
    if not before:  # no reward model was trained on an answer without a prompt
        raise Rejected(Reason.NO_MESSAGES)
    return ScoreRequest(before, (response_of("final", response),), judged_by, tools=tool_texts)


def read_score_request_or_refuse(turns: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> ScoreRequest:
    """`read_score_request` for formats without a place for a reason: raises `ApiError` instead of `Rejected`."""
    try:
        return read_score_request(turns, tools=tools)
    except Rejected as rejected:
        raise no_score_error(rejected.reason) from None


def check_alone(request: ScoreRequest) -> ScoreRequest:
    """The request unchanged, for formats whose answer is one number. Raises `ApiError` if it has several responses."""
    if len(request.responses) > 1:
        raise BadRequest(
            "the answer holds one reward, and there are two responses: ask /v1/rewards, or send one", "messages"
        )
    return request


def document_request(question: str, documents: Sequence[str], place: str, first: int = 0) -> ScoreRequest:
    """The request for a user's question, read once, with each of the documents as a response to it.

    Raises `ApiError`, which names what can't be judged: the field of the question, `place`, or a document by its position,
    counted from `first`.
    """
    try:
        context = conversation([{"role": Role.USER.value, "content": question}])
    except Rejected as rejected:
        raise no_score_error(rejected.reason, place) from None
    responses: list[Response] = []
    for position, content in enumerate(documents, first):
        try:
            responses.append(Response(f"response[{position}]", text(content)))
        except Rejected as rejected:
            raise no_score_error(rejected.reason, document(position)) from None
    return ScoreRequest(context, tuple(responses))


def document(position: int) -> str:
    """The name of a document in errors."""
    return f"documents[{position}]"


def as_answer(turn: ChatMessage) -> Answer:
    """A response, read as the assistant's turn that it is, whatever its role is called.

    Raises `Rejected`.
    """
    return answer({**turn.fields, "role": Role.ASSISTANT.value})
