"""The endpoint as a Ray Serve application.

    serve run deploy.app:app models=tiny-attributes
    serve deploy deploy/serve.yaml

In front stands a thin ingress, behind it one deployment per model, whose replicas each hold an engine.
"""

from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from actors.launch.placement import actor_options, check_memory
from actors.reward_model import RewardModel, resolve_model
from actors.workers.serve_actor import ServeActor
from deploy.ray_serve import autoscaling
from deploy.ray_serve.ingress import Ingress
from deploy.settings import EndpointSettings, LimitSettings, ServedModelSettings
from deploy.web.auth import Keys, read_keys

_SPARE = 64
"""Requests that Serve lets through to an ingress beyond its own limit, so that it is the ingress that refuses them."""
_DRAIN_S = 60.0
_LOGGING = {"enable_access_log": False}
"""A line for each request, in each of three processes, costs as much as the request; `assay_requests_total` counts them."""


def app(settings: EndpointSettings) -> serve.Application:
    """The application. Raises a `UserError` for a model that can't be served, before anything is started."""
    return build(settings, read_keys(settings.access))


def build(settings: EndpointSettings, keys: Keys) -> serve.Application:
    """The same with keys that were read already."""
    models = [resolve_model(own, own.render, tensor_parallel=own.engine.tensor_parallel) for own in settings.models]
    for own, model in zip(settings.models, models, strict=True) if ray.is_initialized() else ():
        check_memory(own.engine, model)
    judges = {
        own.called[0]: _judge(number, own, model, settings.limits)
        for number, (own, model) in enumerate(zip(settings.models, models, strict=True))
    }
    ingress: Any = serve.deployment(Ingress)
    return ingress.options(
        name="ingress",
        num_replicas=settings.ingresses,
        max_ongoing_requests=settings.limits.max_requests + _SPARE,
        ray_actor_options={"num_cpus": 0.1},
        graceful_shutdown_timeout_s=_DRAIN_S,
        health_check_period_s=2.0,
        logging_config=_LOGGING,
    ).bind(settings, models, keys, judges)


def _judge(number: int, own: ServedModelSettings, model: RewardModel, limits: LimitSettings) -> serve.Application:
    scaling = own.scaling
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
                look_back_period_s=max(11.0, scaling.upscale_delay_s),
                policy=policy_of(policy_function=autoscaling.Enough, policy_kwargs=targets),
            )
        }
    )
    deployment: Any = serve.deployment(ServeActor)
    return deployment.options(
        name=f"model-{number}",
        max_ongoing_requests=limits.max_replica_requests,
        max_queued_requests=limits.max_requests,
        ray_actor_options=_resources(own),
        graceful_shutdown_timeout_s=_DRAIN_S,
        health_check_period_s=2.0,
        logging_config=_LOGGING,
        **bounds,
    ).bind(model, own.render, own.engine)


def _resources(own: ServedModelSettings) -> dict[str, Any]:
    """GPUs for the engine where there are any; on a CPU, next to nothing, since the engine's threads are its own."""
    return {"num_cpus": 0.1} | (actor_options(own.engine) if ray.is_initialized() else {})
