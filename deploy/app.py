"""The endpoint as a Ray Serve application.

    serve run deploy.app:app models=tiny-attributes
    serve deploy deploy/serve.yaml

A thin ingress has the routes, keys and limits; behind it is one deployment per model, with an engine in each replica.
"""

from collections.abc import Sequence
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from actors.engine.engine_arguments import check_installed
from actors.errors import SettingsError
from actors.launch.placement import actor_options, check_memory
from actors.reward_model import RewardModel, resolve_model
from actors.settings.endpoint import HERE
from actors.workers.serve_actor import ServeActor
from deploy.ray_serve import autoscaling
from deploy.ray_serve.ingress import Ingress
from deploy.settings import EndpointSettings, LimitSettings, ServedModelSettings
from deploy.web.auth import Keys, read_keys

_SPARE = 64
"""Requests that Serve lets through to an ingress beyond `max_requests`. The ingress refuses them with 429; Serve would make
them wait."""
DRAIN_S = 60.0
"""Seconds that requests under way get to be finished before their replica is ended."""
_STOP_LOOP_S = 0.2
"""Seconds to the first look at a replica's requests before it is ended, and between two looks. Serve's default is 2."""
_LOGGING = {"enable_access_log": False}
"""No access logs: a line per request in each of three processes costs as much as a small request; metrics count them."""


def app(settings: EndpointSettings) -> serve.Application:
    """The application. Raises a `UserError` for a model that can't be served, before any process is started."""
    return build(settings, read_keys(settings.access), resolve_models(settings))


def resolve_models(settings: EndpointSettings) -> list[RewardModel]:
    """All models, in their order. Needs no Ray. Raises a `UserError` for one that can't be served, or whose engine can't."""
    for served in settings.models:
        if served.endpoint != HERE:
            raise SettingsError(f"{served.model}: an endpoint serves models that run here, and no other endpoint's")
        check_installed(served.engine)
    return [
        resolve_model(served, served.render, tensor_parallel=served.engine.tensor_parallel) for served in settings.models
    ]


def build(settings: EndpointSettings, keys: Keys, models: Sequence[RewardModel]) -> serve.Application:
    """`app` with keys that were read already, and models that were resolved."""
    # Without a cluster (`serve build` makes a config file on any machine) there are no GPUs to compare with.
    for served, model in zip(settings.models, models, strict=True) if ray.is_initialized() else ():
        check_memory(served.engine, model)
    judges = {
        served.names[0]: _judge(number, served, model, settings.limits)
        for number, (served, model) in enumerate(zip(settings.models, models, strict=True))
    }
    ingress: Any = serve.deployment(Ingress)
    return ingress.options(
        name="ingress",
        num_replicas=settings.ingresses,
        max_ongoing_requests=settings.limits.max_requests + _SPARE,
        ray_actor_options={"num_cpus": 0.1},
        graceful_shutdown_timeout_s=DRAIN_S,
        graceful_shutdown_wait_loop_s=_STOP_LOOP_S,
        health_check_period_s=2.0,
        logging_config=_LOGGING,
    ).bind(settings, models, keys, judges)


def _judge(number: int, served: ServedModelSettings, model: RewardModel, limits: LimitSettings) -> serve.Application:
    scaling = served.scaling
    policy_of: Any = AutoscalingPolicy
    targets = {"target_requests": scaling.target_requests, "target_tokens": scaling.target_tokens}
    bounds: dict[str, Any] = (
        {"num_replicas": scaling.min_replicas}
        if scaling.min_replicas == scaling.max_replicas
        else {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=scaling.min_replicas,
                max_replicas=scaling.max_replicas,
                upscale_delay_s=scaling.upscale_delay_s,
                downscale_delay_s=scaling.downscale_delay_s,
                # Serve averages the load over this time. It must be above the 10 s between two reports of replicas.
                look_back_period_s=max(11.0, scaling.upscale_delay_s),
                policy=policy_of(policy_function=autoscaling.LoadPolicy, policy_kwargs=targets),
            )
        }
    )
    deployment: Any = serve.deployment(ServeActor)
    return deployment.options(
        name=f"model-{number}",
        max_ongoing_requests=limits.max_replica_requests,
        max_queued_requests=limits.max_requests,
        ray_actor_options=_resources(served),
        graceful_shutdown_timeout_s=DRAIN_S,
        graceful_shutdown_wait_loop_s=_STOP_LOOP_S,
        health_check_period_s=2.0,
        logging_config=_LOGGING,
        **bounds,
    ).bind(model, served.render, served.engine)


def _resources(served: ServedModelSettings) -> dict[str, Any]:
    """Ray's resources of a replica: the engine's GPUs, and 0.1 CPU, since its work is the engine's."""
    return {"num_cpus": 0.1} | (actor_options(served.engine) if ray.is_initialized() else {})
