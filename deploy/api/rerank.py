"""`/rerank` in the shape of vLLM, Jina and Cohere: ranks N answers to a prompt."""

import uuid
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import Field

from deploy.api.score import PAIR_NEUTRAL
from deploy.errors import BadRequest, reward_of
from deploy.models.work import off_loop
from deploy.wire.bodies import ClientBody, Listed, Serving, document, document_request
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


class RerankRequest(ClientBody):
    """A query, and the documents that are ranked as answers to it."""

    neutral: ClassVar = PAIR_NEUTRAL

    model: str | None = None
    query: str
    documents: Annotated[Listed[str], Field(min_length=1)]
    top_n: int | None = Field(default=None, ge=0, description="as many of the best; 0 or nothing: all")
    return_documents: bool = True
    use_activation: bool | None = Field(default=None, description="rewards are raw: true is refused")
    truncate_prompt_tokens: None = None


@router.post("/rerank")
@router.post("/v1/rerank")
@router.post("/v2/rerank")
async def rerank(body: RerankRequest, service: Serving) -> dict[str, Any]:
    """The documents by their rewards, the best first; of equals, the one that came first."""
    served = service.find(body.model)
    if body.use_activation:
        raise BadRequest("rewards are raw; ask /classify for an activation", "use_activation")
    served.check_count(len(body.documents))
    # One request: a judge that compares is shown the documents together, and an engine's cache reads the query once.
    request = await off_loop(lambda: document_request(body.query, body.documents, "query"))
    (result,) = await served.score([request])
    rewards = [reward_of(score, document(position)) for position, score in enumerate(result.scores)]
    best = sorted(range(len(rewards)), key=lambda position: -rewards[position])[: body.top_n or len(rewards)]
    tokens = sum(score.prompt_tokens or 0 for score in result.scores)
    results: list[dict[str, Any]] = [{"index": position, "relevance_score": rewards[position]} for position in best]
    if body.return_documents:
        for entry in results:
            entry["document"] = {"text": body.documents[entry["index"]], "multi_modal": None}
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "model": served.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": results,
    }
