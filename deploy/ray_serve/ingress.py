"""What HAProxy sends requests to: a model's own replicas, or in front of several models a thin router."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus

from actors.reward_model import RewardModel
from actors.scorers.online import OnlineScorer, WithScoreMemory
from actors.workers.serve_actor import ServeActor
from deploy.errors import ApiError
from deploy.metrics.counters import tell
from deploy.metrics.prometheus import scrape
from deploy.models.service import Scoring, ServedModel, Service
from deploy.ray_serve.haproxy import check_in_front
from deploy.settings import EndpointSettings
from deploy.web.app import create_app
from deploy.web.auth import Keys

T = TypeVar("T")

_STATUS_TIMEOUT_S = 5.0
_AT_WORK = frozenset({"HEALTHY", "UPSCALING", "DOWNSCALING"})  # Serve's states of a deployment that answers


class Replicas:
    """The replicas of one model, through Serve's handle: each call goes to one replica, which answers all of it.

    So the responses to one prompt meet in one prefix cache.
    """

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def answer(self, call: Callable[[OnlineScorer], Awaitable[T]]) -> T:
        """The answer of one replica. Serve goes on with a request that nobody awaits any more, so it is told."""
        response: Any = self._handle.answer.remote(call)
        try:
            answer: T = await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        return answer


async def _ask(threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """What a blocking call returns or raises; `TimeoutError` after 5 s."""
    return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(threads, call), _STATUS_TIMEOUT_S)


class _Endpoint:
    """HTTP for some models, and the state of the applications that these are."""

    def _open(
        self, settings: EndpointSettings, keys: Keys, models: Sequence[RewardModel], scorings: Sequence[Scoring]
    ) -> None:
        served = [
            ServedModel(
                settings_of_model.names, model, scoring, settings.limits,
                render=settings_of_model.render, engine=settings_of_model.engine,
            )
            for settings_of_model, model, scoring in zip(settings.models, models, scorings, strict=True)
        ]  # fmt: skip
        self._service = Service(served, settings.limits)
        self._keys = keys
        self._origins = settings.access.cors_origins
        self._apps = {serve.get_replica_context().app_name}
        # Calls of Ray block, and may hang with its controller: so not in the loop's own threads, in which bodies are read.
        # One hangs, and not the other kind with it; later ones wait for its thread, and are cancelled at their time-out.
        self._of_serve, self._of_nodes = ThreadPoolExecutor(1, "status"), ThreadPoolExecutor(1, "nodes")

    def __serve_build_asgi_app__(self) -> Any:
        # Serve calls this after `__init__`, and serves what it returns.
        self._gate = create_app(self._service, self._keys, self._not_ready, self._metrics, self._origins)
        return self._gate

    async def drain(self) -> None:
        """See `Gate.drain`. `assay serve` calls this before it ends anything, while HAProxy still passes answers on."""
        await self._gate.drain()

    async def check_health(self) -> None:
        tell()  # Serve calls this every two seconds

    async def _not_ready(self) -> str | None:
        """Why the endpoint isn't ready, by Serve's status; None if it is.

        A model that is scaled to zero is ready: the next request starts a replica.
        """
        if self._gate.is_stopping:
            return "this endpoint is stopping"
        try:
            status = await _ask(self._of_serve, serve.status)
        except TimeoutError:
            return "Ray Serve's controller doesn't answer"
        waiting = []
        for name in self._apps:
            app = status.applications.get(name)
            if app is None or app.status is not ApplicationStatus.RUNNING:
                return f"the application is {app.status.value if app else 'not there'}"
            waiting += [name for name, deployment in app.deployments.items() if deployment.status not in _AT_WORK]
        return f"not ready yet: {', '.join(waiting)}" if waiting else None

    async def _metrics(self) -> str:
        try:
            nodes = [node for node in await _ask(self._of_nodes, ray.nodes) if node["Alive"]]
        except TimeoutError:
            raise ApiError(503, "Ray's control store doesn't answer", code="not_ready", retry_after_s=5) from None
        # Each node's own agent: the metrics of a replica are nowhere else.
        return await scrape([f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in nodes])


@serve.ingress()
class ModelReplica(_Endpoint, ServeActor):
    """A replica of one model: HTTP, the checks of requests and the engine in one process.

    A router calls it by `answer`.
    """

    def __init__(
        self, settings: EndpointSettings, keys: Keys, model: RewardModel, remember: WithScoreMemory | None = None
    ) -> None:
        """`settings` are those of this model alone."""
        check_in_front(os.environ)
        (served,) = settings.models
        ServeActor.__init__(self, model, served.render, served.engine, remember)
        self._open(settings, keys, [model], [self])

    async def check_health(self) -> None:
        await _Endpoint.check_health(self)
        await ServeActor.check_health(self)


@serve.ingress()
class Router(_Endpoint):
    """Several models under one address: each request goes to a replica of the model that it names.

    Also one model alone, where it may have no replica at all or where rollouts must meet in one process.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        keys: Keys,
        models: Sequence[RewardModel],
        handles: Mapping[str, DeploymentHandle[Any]],
    ) -> None:
        check_in_front(os.environ)
        self._open(settings, keys, models, [Replicas(handles[served.names[0]]) for served in settings.models])
        self._apps |= {handle.app_name for handle in handles.values()}
