"""vLLM's `/pooling`: a head's raw outputs, for a conversation or for prompts that the client has rendered.

As in vLLM, with two differences: outputs are activated only on request, and a text that begins with the beginning-of-text
token doesn't get another one.
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
from actors.scorers.head_scorer import HeadOutputs
from actors.scorers.online import Rendered
from deploy.errors import BadRequest, reward_of
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import ClientBody, Listed, Serving, Turns, check_alone, read_score_request_or_refuse
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

TokenId = Annotated[int, Field(ge=0, lt=2**31)]  # beyond any vocabulary; the model's own size is checked by the renderer
Input = str | Listed[str] | Listed[TokenId] | Listed[Listed[TokenId]]


class PromptBody(ClientBody):
    """The fields that vLLM's two routes share.

    What would change a prompt or cut it is refused: its number would be another one.
    """

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
    use_activation: bool | None = Field(default=None, description="vLLM's sigmoid or softmax instead of raw outputs")
    activation: bool | None = Field(default=None, description="the same, as older clients of vLLM say it")
    softmax: bool | None = Field(default=None, description="the same, older still")

    @property
    def activated(self) -> bool:
        """Whether the outputs are to be activated. Raises `ApiError` if the three fields for it contradict each other."""
        # Older clients send the older names beside the new one: they may, as long as all say the same.
        values = {value for value in (self.use_activation, self.activation, self.softmax) if value is not None}
        if len(values) > 1:
            raise BadRequest("use_activation, activation and softmax say different things", "use_activation")
        return values == {True}

    @property
    def place(self) -> str:
        return "messages" if self.messages is not None else "input"

    @property
    def prompts(self) -> list[Rendered | ScoreRequest]:
        """The prompts to read: rendered ones, or one request. Raises `ApiError`."""
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
    """Raw outputs of the head where the reward is read; of a model that judges steps, at each step.

    All of its outputs in the order of the checkpoint, also those that no reward is made of.
    """
    served = service.find(body.model)
    if body.task not in (None, "classify"):
        raise BadRequest("`task` can only be `classify`: the head is read where the model's authors read it", "task")
    outputs = await read(served, await off_loop(lambda: body.prompts), body.place, raw=True)
    data = [
        {"index": position, "object": "pooling", "data": encode(_values(output, body.activated), body.encoding_format)}
        for position, output in enumerate(outputs)
    ]
    return envelope("pooling", served, data, outputs)


async def read(
    served: ServedModel, prompts: Sequence[Rendered | ScoreRequest], field: str, *, raw: bool
) -> list[HeadOutputs]:
    """The outputs of all prompts in `field`, `raw` as in `ServedModel.read`.

    Raises `ApiError` if one has none: the format has no place for a reason.
    """
    outputs = await served.read(prompts, raw=raw)
    for position, output in enumerate(outputs):
        reward_of(output.score, field if len(outputs) == 1 else f"{field}[{position}]")
    return outputs


def as_prompts(field: Input) -> list[str | tuple[int, ...]]:
    """The prompts in a field that holds one or several, as texts or as token ids. Raises `ApiError` for none."""
    if isinstance(field, str):
        return [field]
    if not field:
        raise BadRequest("`input` holds no prompt", "input")
    if all(isinstance(item, int) for item in field):  # one prompt as token ids, not several prompts
        return [tuple(item for item in field if isinstance(item, int))]
    return [item if isinstance(item, str) else tuple(item) for item in field if not isinstance(item, int)]


def envelope(kind: str, served: ServedModel, data: Sequence[Any], outputs: Sequence[HeadOutputs]) -> dict[str, Any]:
    """The answer around `data`, with the usage, as in vLLM."""
    tokens = sum(output.score.prompt_tokens or 0 for output in outputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
    return {
        "id": f"{kind}-{uuid.uuid4().hex}", "object": "list", "created": int(time.time()), "model": served.name,
        "data": data, "usage": usage,
    }  # fmt: skip


def activated(values: Sequence[float], is_activated: bool) -> list[float]:
    """The values, or if `is_activated` vLLM's activation of them: a sigmoid of one value, a softmax of several."""
    return list(activation(values) if is_activated else values)


def reward_or_activated(output: HeadOutputs, is_activated: bool) -> list[float]:
    """The reward alone, or if `is_activated` vLLM's activation of the outputs, for formats whose clients read the last."""
    return activated(output.rows[-1], True) if is_activated else [reward_of(output.score)]


def _values(outputs: HeadOutputs, is_activated: bool) -> list[float] | list[list[float]]:
    """A row per step for a model that judges steps, otherwise the last row alone."""
    # A prompt of steps is read at each of them; of others read at several places the last is the reward's.
    rows = [activated(row, is_activated) for row in outputs.rows]
    return rows if outputs.score.steps else rows[-1]


def encode(values: Any, encoding: str) -> Any:
    """The values as they are, or as base64 of little-endian float32, rows one after another."""
    if encoding == "float":
        return values
    flat = [value for row in values for value in row] if isinstance(values[0], list) else values
    # OpenAI's client reads them by numpy in the machine's order, which is little-endian on all that run it.
    return base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()
