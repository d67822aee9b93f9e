"""The ingress in front of the models: one thin process with the routes, the keys, the limits and the page."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus

from actors.engine.protocol import Sampling
from actors.records import Reason, ScoreRequest
from actors.reward_model import RewardModel
from actors.scorers.online import JudgeText, OnlineScorer
from deploy.errors import ApiError
from deploy.metrics.prometheus import scrape
from deploy.models.cohorts import Complete, Member, Outcome, Seat
from deploy.models.service import ServedModel, Service, errors_for_clients
from deploy.settings import EndpointSettings
from deploy.web.app import create_app
from deploy.web.auth import Keys
from deploy.web.shared import Blocking

T = TypeVar("T")

_STATUS_TIMEOUT_S = 5.0
_AT_WORK = frozenset({"HEALTHY", "UPSCALING", "DOWNSCALING"})


class Replicas:
    """The replicas of one model, through Serve's handle: each call goes to one replica, which answers all of it."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle
        self._streams: Any = handle.options(stream=True)

    async def answer(self, call: Callable[[OnlineScorer], Awaitable[T]]) -> T:
        """The answer of one replica."""
        answer: T = await _answer_of(self._handle.answer.remote(call))
        return answer

    async def stream(self, request: ScoreRequest, sampling: Sampling) -> AsyncIterator[JudgeText | Reason]:
        """See `OnlineScorer.stream`."""
        states = self._streams.stream.remote(request, sampling)
        try:
            async for written in states:
                yield written
        finally:
            states.cancel()


class SharedCohorts:
    """The cohorts of an endpoint with any number of ingresses, in a deployment of one process."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def join(self, seat: Seat, member: Member) -> Complete | Outcome:
        """See `Cohorts.join`."""
        with errors_for_clients(seat.timeout_s):
            joined: Complete | Outcome = await _answer_of(self._handle.join.remote(seat, member))
            return joined

    async def settle(self, ticket: int, outcomes: Sequence[Outcome]) -> None:
        """See `Cohorts.settle`."""
        with errors_for_clients(0.0):
            await _answer_of(self._handle.settle.remote(ticket, outcomes))


async def _answer_of(response: Any) -> Any:
    """The answer to a call. Serve goes on with one that nobody awaits any more, so it is told."""
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise


@serve.ingress()
class Ingress:
    """The deployment that Serve's proxies send requests to."""

    def __init__(
        self,
        settings: EndpointSettings,
        models: Sequence[RewardModel],
        keys: Keys,
        handles: Mapping[str, DeploymentHandle[Any]],
        cohorts: DeploymentHandle[Any] | None = None,
    ) -> None:
        served = [
            ServedModel(
                settings_of_model.names,
                model,
                Replicas(handles[settings_of_model.names[0]]),
                settings.limits,
                render=settings_of_model.render,
                engine=settings_of_model.engine,
            )
            for settings_of_model, model in zip(settings.models, models, strict=True)
        ]
        self._service = Service(
            served,
            settings.limits,
            message_as_list=settings.message_as_list,
            cohorts=SharedCohorts(cohorts) if cohorts is not None else None,
        )
        self._keys = keys
        self._origins = settings.access.cors_origins
        self._app = serve.get_replica_context().app_name
        self._status = Blocking(serve.status, _STATUS_TIMEOUT_S)
        self._nodes = Blocking(ray.nodes, _STATUS_TIMEOUT_S)

    def __serve_build_asgi_app__(self) -> Any:
        """Serve calls this after `__init__`."""
        self._gate = create_app(self._service, self._keys, self._not_ready, self._metrics, self._origins)
        return self._gate

    async def drain(self) -> None:
        """See `Gate.drain`. `assay serve` calls this before it ends anything, while the proxies still pass answers on."""
        await self._gate.drain()

    async def _not_ready(self) -> str | None:
        """Why the endpoint isn't ready, by Serve's status; None if it is.

        A model that is scaled to zero is ready: the next request starts a replica.
        """
        if self._gate.is_stopping:
            return "this endpoint is stopping"
        try:
            status = await self._status()
        except TimeoutError:
            return "Ray Serve's controller doesn't answer"
        app = status.applications.get(self._app)
        if app is None or app.status is not ApplicationStatus.RUNNING:
            return f"the application is {app.status.value if app else 'not there'}"
        waiting = [name for name, deployment in app.deployments.items() if deployment.status not in _AT_WORK]
        return f"not ready yet: {', '.join(waiting)}" if waiting else None

    async def _metrics(self) -> str:
        try:
            nodes = [node for node in await self._nodes() if node["Alive"]]
        except TimeoutError:
            raise ApiError(503, "Ray's control store doesn't answer", code="not_ready", retry_after_s=5) from None
        return await scrape([f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in nodes])
