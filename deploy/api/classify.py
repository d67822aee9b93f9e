"""`/classify`, in vLLM's shape and in SGLang's: the body tells them apart.

vLLM's `probs` holds one number here, the reward, which verl reads as `probs[-1]`; `scores` has the named outputs. With
`use_activation` it holds what vLLM gives by default, a sigmoid or a softmax. SGLang's `embedding` has the raw outputs.
"""

import uuid
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from actors.scorers.head_scorer import HeadOutputs
from actors.scorers.online import Rendered
from deploy.api.pooling import PromptBody, TokenId, activated, as_prompts, envelope, read, reward_or_activated
from deploy.errors import BadRequest
from deploy.models.service import Service
from deploy.models.work import off_loop
from deploy.wire.bodies import Listed, Serving
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


class ClassifyRequest(PromptBody):
    """vLLM's request, or SGLang's with `text` or `input_ids`.

    The two are told apart by these fields, and can't be mixed.
    """

    text: str | Listed[str] | None = Field(default=None, description="SGLang's: prompts that the client has rendered")
    input_ids: Listed[TokenId] | Listed[Listed[TokenId]] | None = Field(
        default=None, description="SGLang's: the same as token ids"
    )
    rid: str | Listed[str] | None = Field(default=None, description="SGLang's")


@router.put("/classify", response_model=None)  # SGLang's, too
@router.post("/classify", response_model=None)
async def classify(body: ClassifyRequest, service: Serving, request: Request) -> dict[str, Any] | list[dict[str, Any]]:
    """The reward of a conversation, or of prompts that the client has rendered.

    With `use_activation` vLLM's activation of the raw outputs instead.
    """
    if body.text is None and body.input_ids is None:
        return await _vllm(body, service)
    if body.input is not None or body.messages is not None:
        raise BadRequest("`text` and `input_ids` are SGLang's, `input` and `messages` vLLM's: give one", "input")
    return await _sglang(body, service)


async def _vllm(body: ClassifyRequest, service: Service) -> dict[str, Any]:
    served = service.find(body.model)
    outputs = await read(served, await off_loop(lambda: body.prompts), body.place, raw=body.activated)
    data = [_class(position, output, body.activated) for position, output in enumerate(outputs)]
    return envelope("classify", served, data, outputs)


def _class(at: int, output: HeadOutputs, is_activated: bool) -> dict[str, Any]:
    probs = reward_or_activated(output, is_activated)
    # vLLM's label of a class by its position; a reward is no class.
    label = "reward" if not is_activated else f"LABEL_{max(range(len(probs)), key=probs.__getitem__)}"
    return {"index": at, "label": label, "probs": probs, "num_classes": len(probs), "scores": dict(output.score.scores)}


async def _sglang(body: ClassifyRequest, service: Service) -> dict[str, Any] | list[dict[str, Any]]:
    field: Any = body.text if body.text is not None else body.input_ids
    if body.text is not None and body.input_ids is not None:
        raise BadRequest("give either `text` or `input_ids`", "text")
    prompts = [Rendered(prompt) for prompt in as_prompts(field)]
    outputs = await read(service.find(body.model), prompts, "text" if body.text is not None else "input_ids", raw=True)
    answers = [
        {
            "embedding": activated(output.rows[-1], body.activated),
            "meta_info": {
                "id": uuid.uuid4().hex,
                "prompt_tokens": output.score.prompt_tokens,
                "reward": output.score.reward,
            },
        }
        for output in outputs
    ]
    # As in SGLang: a text, or one list of token ids, gets an object; a list of either gets a list, also of one.
    is_single = isinstance(field, str) or (field and isinstance(field[0], int))
    return answers[0] if is_single else answers
