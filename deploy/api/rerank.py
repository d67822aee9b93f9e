"""`/rerank` in the shape of vLLM, Jina and Cohere: ranks N answers to a prompt."""

import uuid
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import Field

from deploy.api.score import PAIR_NEUTRAL, scores_of
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
    # Before the requests are made, each of which holds the query.
    served.check_characters(len(body.query) * len(body.documents))
    requests = await off_loop(
        lambda: [document_request(body.query, answer, at, "query") for at, answer in enumerate(body.documents)]
    )
    scores = await scores_of(served, requests)
    rewards = [reward_of(score, document(at)) for at, score in enumerate(scores)]
    best = sorted(range(len(rewards)), key=lambda at: -rewards[at])[: body.top_n or len(rewards)]
    tokens = sum(score.prompt_tokens or 0 for score in scores)
    results = [{"index": at, "relevance_score": rewards[at], **_document(body, at)} for at in best]
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "model": served.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": results,
    }


def _document(body: RerankRequest, at: int) -> dict[str, Any]:
    return {"document": {"text": body.documents[at], "multi_modal": None}} if body.return_documents else {}
