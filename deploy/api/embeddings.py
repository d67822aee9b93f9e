"""`/v1/embeddings`, as SGLang answers for a reward model: verl posts a rendered prompt, and reads `data[-1].embedding[-1]`.

The embedding is one number, the reward, as `probs` of `/classify` is, so that its last one is the reward of a model with
several outputs, too; `scores` has these by name. OpenAI's client asks for base64 unless it is told otherwise.
"""

from typing import Any, Literal

from fastapi import APIRouter

from deploy.api.pooling import PromptBody, encode, envelope, read, reward_or_activated
from deploy.models.work import off_loop
from deploy.wire.bodies import Serving
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


class EmbeddingsRequest(PromptBody):
    """OpenAI's request, or with `messages` SGLang's and vLLM's.

    `dimensions` is refused: a reward has one.
    """

    encoding_format: Literal["float", "base64"] = "float"


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingsRequest, service: Serving) -> dict[str, Any]:
    """The reward of a conversation, or of prompts that the client has rendered, in the place of an embedding."""
    served = service.find(body.model)
    outputs = await read(served, await off_loop(lambda: body.prompts), body.place, raw=body.activated)
    data = [
        {
            "index": position,
            "object": "embedding",
            "embedding": encode(reward_or_activated(output, body.activated), body.encoding_format),
            "scores": dict(output.score.scores),
        }
        for position, output in enumerate(outputs)
    ]
    return envelope("embd", served, data, outputs)
