"""vLLM's `/score`: how good each document is as an answer to its query. The scores are raw rewards."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import APIRouter
from pydantic import AliasChoices, Field

from actors.records import Message, Score, ScoreRequest
from actors.scorers.head_scorer import HeadOutputs
from deploy.api.pooling import envelope
from deploy.errors import BadRequest, reward_of
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import ClientBody, Listed, Serving, document, document_request, request_with_answers
from deploy.wire.json_route import JsonRoute

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


PAIR_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "add_special_tokens": (True,),
    "chat_template_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "max_tokens_per_query": (0,),  # in vLLM: no limit
    "max_tokens_per_doc": (0,),
    "rank_fields": ([],),
    "priority": (0,),
}
"""Neutral values of fields of vLLM, Cohere and Jina."""


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
    """A reward for each document."""
    served = service.find(body.model)
    if body.use_activation:
        raise BadRequest("rewards are raw; ask /classify for an activation", "use_activation")
    queries = [body.queries] if isinstance(body.queries, str) else body.queries
    documents = [body.documents] if isinstance(body.documents, str) else body.documents
    places = [f"queries[{position}]" for position in range(len(queries))]
    served.check_count(len(documents))
    if len(queries) == 1:
        served.check_characters(len(queries[0]) * len(documents))
        queries, places = queries * len(documents), ["queries"] * len(documents)
    if not documents or len(queries) != len(documents):
        raise BadRequest(
            f"{len(queries)} queries and {len(documents)} documents: give one query, or as many of both", "queries"
        )
    pairs = list(zip(queries, documents, places, strict=True))
    requests = await off_loop(
        lambda: [document_request(query, answer, position, place) for position, (query, answer, place) in enumerate(pairs)]
    )
    scores = await scores_of(served, requests)
    data = [
        {"index": position, "object": "score", "score": reward_of(score, document(position))}
        for position, score in enumerate(scores)
    ]
    return envelope("score", served, data, [HeadOutputs((score,), ()) for score in scores])


async def scores_of(served: ServedModel, pairs: list[ScoreRequest]) -> list[Score]:
    """The scores of requests with one response each, in their order.

    Those with equal contexts are merged into one request, which one replica answers: its cache reads the context once.
    """
    groups: dict[tuple[Message, ...], list[int]] = {}
    for position, pair in enumerate(pairs):
        groups.setdefault(pair.context, []).append(position)
    requests = [
        request_with_answers(context, [pairs[position].responses[0].content for position in positions])
        for context, positions in groups.items()
    ]
    by_position: dict[int, Score] = {}
    for positions, result in zip(groups.values(), await served.score(requests), strict=True):
        by_position |= dict(zip(positions, result.scores, strict=True))
    return [by_position[position] for position in range(len(pairs))]
