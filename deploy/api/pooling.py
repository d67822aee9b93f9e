"""vLLM's `/pooling`: a head's raw outputs, for a conversation or for prompts that the client has rendered.

As in vLLM, but that outputs are never activated unless that is asked for, and that a text which begins with the token for
its beginning doesn't get another one.
"""

import base64
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import Field

from actors.engine.protocol import activation
from actors.records import ScoreRequest
from actors.scorers.online import RawOutputs, Rendered
from deploy.api.bodies import Listed, RequestBody, Serving, Turns, check_alone, read_score_request_or_refuse
from deploy.api.json_route import JsonRoute
from deploy.errors import BadRequest, score_error
from deploy.models.service import ServedModel
from deploy.models.work import off_loop

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Input = str | Listed[str] | Listed[TokenId] | Listed[Listed[TokenId]]


class PromptBody(RequestBody):
    """What vLLM's two routes have in common."""

    neutral: ClassVar = {
        "add_generation_prompt": (False,),
        "continue_final_message": (False,),
        "padding": (False,),
        "chat_template_kwargs": ({},),
        "mm_processor_kwargs": ({},),
        "sampling_params": ({},),  # SGLang's
    }

    model: str | None = None
    input: Input | None = None
    messages: Turns | None = None
    add_special_tokens: bool = Field(default=True, description="put the token for the beginning first, if it isn't there")
    truncate_prompt_tokens: Literal[-1] | None = Field(default=None, description="a cut prompt has another reward: refused")
    priority: Literal[0] = 0
    request_id: str | None = None
    user: str | None = None
    use_activation: bool | None = Field(default=None, description="vLLM's sigmoid or softmax instead of raw outputs")
    activation: bool | None = Field(default=None, description="the same, as older clients of vLLM say it")
    softmax: bool | None = Field(default=None, description="the same, older still")

    @property
    def activated(self) -> bool:
        """Whether an activation is asked for. Raises `ApiError` if what is asked for contradicts itself."""
        said = {way for way in (self.use_activation, self.activation, self.softmax) if way is not None}
        if len(said) > 1:
            raise BadRequest("use_activation, activation and softmax say different things", "use_activation")
        return said == {True}

    @property
    def place(self) -> str:
        """The field that `prompts` are from."""
        return "messages" if self.messages is not None else "input"

    @property
    def prompts(self) -> list[Rendered | ScoreRequest]:
        """What is asked about. Raises `ApiError`."""
        if (self.messages is None) == (self.input is None):
            raise BadRequest("give either `input` or `messages`", "input")
        if self.messages is not None:
            return [check_alone(read_score_request_or_refuse(self.messages))]
        return [Rendered(prompt, self.add_special_tokens) for prompt in as_prompts(self.input or [])]


class PoolingRequest(PromptBody):
    """vLLM's request."""

    task: str | None = Field(default=None, description="`classify`, which is what is done; any other is refused")
    encoding_format: Literal["float", "base64"] = "float"
    embed_dtype: Literal["float32"] = "float32"
    endianness: Literal["native", "little"] = "native"


@router.post("/pooling")
async def pooling(body: PoolingRequest, service: Serving) -> dict[str, Any]:
    """Raw outputs of the head where the reward is read; of a model that judges steps, at each step."""
    served = service.find(body.model)
    if body.task not in (None, "classify"):
        raise BadRequest("`task` can only be `classify`: the head is read where the model's authors read it", "task")
    found = await read(served, await off_loop(lambda: body.prompts), body.place)
    data = [
        {"index": at, "object": "pooling", "data": _encoded(_values(one, body.activated), body.encoding_format)}
        for at, one in enumerate(found)
    ]
    return envelope("pooling", served, data, found)


async def read(served: ServedModel, prompts: Sequence[Rendered | ScoreRequest], field: str) -> list[RawOutputs]:
    """The outputs for all prompts in this field. Raises `ApiError` if one has none: the format has no place for a reason."""
    found = await served.read(prompts)
    for at, one in enumerate(found):
        if error := score_error(one.score, field if len(found) == 1 else f"{field}[{at}]"):
            raise error
    return found


def as_prompts(given: Input) -> list[str | tuple[int, ...]]:
    """One or several, as texts or as token ids. Raises `ApiError` for none."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise BadRequest("`input` holds no prompt", "input")
    if all(isinstance(one, int) for one in given):
        return [tuple(one for one in given if isinstance(one, int))]
    return [one if isinstance(one, str) else tuple(one) for one in given if not isinstance(one, int)]


def envelope(kind: str, served: ServedModel, data: Sequence[Any], found: Sequence[RawOutputs]) -> dict[str, Any]:
    """Around the data, as in vLLM."""
    tokens = sum(one.score.prompt_tokens or 0 for one in found)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
    return {
        "id": f"{kind}-{uuid.uuid4().hex}", "object": "list", "created": int(time.time()), "model": served.name,
        "data": data, "usage": usage,
    }  # fmt: skip


def activated(values: Sequence[float], wanted: bool) -> list[float]:
    """The values, or what vLLM's activation makes of them."""
    return list(activation(values) if wanted else values)


def _values(one: RawOutputs, wanted: bool) -> list[float] | list[list[float]]:
    rows = [activated(row, wanted) for row in one.rows]
    return rows if one.score.steps else rows[-1]


def _encoded(values: Any, form: str) -> Any:
    if form == "float":
        return values
    flat = [value for row in values for value in row] if isinstance(values[0], list) else values
    return base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()
