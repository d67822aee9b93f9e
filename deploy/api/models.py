"""Information about the endpoint: OpenAI's list of models, health probes, and Prometheus' metrics."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from actors.contracts.judge import Judge
from deploy.errors import ApiError
from deploy.models.service import ServedModel
from deploy.wire.bodies import Serving

router = APIRouter(tags=["about the endpoint"])


@router.get("/v1/models")
async def models(service: Serving) -> dict[str, Any]:
    """All models under all of their names, but for the path of a folder that has another name.

    What a client needs to ask each: its outputs, weights, fields, and what its numbers depend on.
    """
    names = ((model, name) for model in service.models for name in model.names)
    shown = [_card(model, name) for model, name in names if name == model.name or name != model.model.model]
    return {"object": "list", "data": shown}


@router.get("/v1/models/{name:path}")
async def model(name: str, service: Serving) -> dict[str, Any]:
    """One model."""
    return _card(service.find(name), name)


@router.get("/health")
async def health() -> dict[str, str]:
    """Whether this process answers: for liveness probes."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(request: Request) -> JSONResponse:
    """Whether every model has passed its self-test and can be asked: for readiness probes.

    503 with what is missing until then, and again once the endpoint is stopping.
    """
    missing = await request.app.state.ready()
    if missing is not None:
        error = ApiError(503, missing, code="not_ready", retry_after_s=5)
        return JSONResponse(error.body, error.status, error.headers)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> PlainTextResponse:
    """Everything that is measured, of all replicas, for Prometheus."""
    return PlainTextResponse(await request.app.state.metrics(), media_type="text/plain; version=0.0.4")


def _card(served: ServedModel, name: str) -> dict[str, Any]:
    model, family = served.model, served.model.family
    return {
        "id": name,
        "object": "model",
        "created": 0,  # unknown, and OpenAI's clients need a number
        "owned_by": "assay",
        "root": model.model,
        "max_model_len": model.max_model_len,
        "family": family.name,
        # By which a client knows the routes that answer: raw outputs of heads alone, texts of judges alone.
        "kind": "head" if model.task.pools else "judge" if model.task.writes else "verifier",
        "outputs": list(family.outputs()),
        "weights": dict(model.weights),
        "aggregate": family.asks.aggregate or family.aggregate if isinstance(family, Judge) else None,
        "range": family.range,
        "takes_principles": family.takes_principles,
        "needs_principles": family.needs_principles,
        "fields": list(family.field_names),
        "compares": family.together,
        "template_hash": model.hashes.get("template"),
        "identity": served.identity,
        "system_fingerprint": served.fingerprint,
    }
