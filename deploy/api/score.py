"""vLLM's `/score`: how good each document is as an answer to its query. The scores are raw rewards."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import APIRouter
from pydantic import AliasChoices, Field

from actors.records import ScoreRequest
from actors.scorers.head_scorer import HeadOutputs
from deploy.api.pooling import envelope
from deploy.errors import BadRequest, reward_of
from deploy.models.work import off_loop
from deploy.wire.bodies import ClientBody, Listed, Serving, document, document_request
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

# Neutral values of fields of vLLM, Cohere and Jina.
PAIR_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "add_special_tokens": (True,),
    "chat_template_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "max_tokens_per_query": (0,),  # in vLLM: no limit
    "max_tokens_per_doc": (0,),
    "rank_fields": ([],),
    "priority": (0,),
}


class ScoreBody(ClientBody):
    """One query and one or several documents, or as many of both. The names are vLLM's, new and old."""

    neutral: ClassVar = PAIR_NEUTRAL

    model: str | None = None
    queries: str | Listed[str] = Field(validation_alias=AliasChoices("queries", "data_1", "text_1"))
    documents: str | Listed[str] = Field(validation_alias=AliasChoices("documents", "items", "data_2", "text_2"))
    use_activation: bool | None = Field(default=None, description="rewards are raw: true is refused")
    truncate_prompt_tokens: None = None


@router.post("/score")
@router.post("/v1/score")
async def score(body: ScoreBody, service: Serving) -> dict[str, Any]:
    """A reward for each document.

    One that has none makes the whole request an error, which names the document.
    """
    served = service.find(body.model)
    if body.use_activation:
        raise BadRequest("rewards are raw; ask /classify for an activation", "use_activation")
    queries = [body.queries] if isinstance(body.queries, str) else body.queries
    documents = [body.documents] if isinstance(body.documents, str) else body.documents
    served.check_count(len(documents))
    if not documents or len(queries) not in (1, len(documents)):
        raise BadRequest(
            f"{len(queries)} queries and {len(documents)} documents: give one query, or as many of both", "queries"
        )
    requests = await off_loop(lambda: _requests(queries, documents))
    scores = [score for result in await served.score(requests) for score in result.scores]
    data = [
        {"index": position, "object": "score", "score": reward_of(score, document(position))}
        for position, score in enumerate(scores)
    ]
    return envelope("score", served, data, [HeadOutputs((score,), ()) for score in scores])


def _requests(queries: Sequence[str], documents: Sequence[str]) -> list[ScoreRequest]:
    if len(set(queries)) == 1:  # one request: a judge that compares is shown its documents together
        return [document_request(queries[0], documents, "queries")]
    pairs = enumerate(zip(queries, documents, strict=True))
    return [document_request(query, [answer], f"queries[{position}]", position) for position, (query, answer) in pairs]
