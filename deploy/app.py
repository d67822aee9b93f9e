"""The endpoint as a Ray Serve application.

    serve run deploy.app:app models=tiny-attributes
    serve deploy deploy/serve.yaml

HAProxy is in front. With one model it passes requests to the replicas themselves, which have the routes, keys and limits
beside the engine; with several, to a thin router before them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, BackpressureConfig
from ray.serve.handle import DeploymentHandle

from actors.engine.engine_arguments import check_installed
from actors.errors import SettingsError
from actors.launch.placement import actor_options, check_memory
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.online import WithScoreMemory
from actors.settings.endpoint import HERE
from actors.workers.serve_actor import ServeActor
from deploy.ray_serve import autoscaling
from deploy.ray_serve.ingress import ModelReplica, Router
from deploy.settings import EndpointSettings, LimitSettings, ServedModelSettings
from deploy.web.auth import Keys, read_keys
from pipelines.run.prepare.identity import open_score_store

_SPARE = 64  # requests that Serve lets through beyond these, which are refused with 429; Serve would make them wait
DRAIN_S = 60.0  # seconds that requests under way get to be finished before their replica is ended
# Seconds to the first look at a replica's requests before it is ended, and between two looks. Serve's default is 2.
_STOP_LOOP_S = 0.2
# No access logs: a line per request in each of three processes costs as much as a small request; metrics count them.
_LOGGING = {"enable_access_log": False}


def app(settings: EndpointSettings) -> serve.Application:
    """The application. Raises a `UserError` for a model that can't be served, before any process is started.

    Keys come from the settings' file and the environment of whoever runs this, not of the replicas.
    """
    return build(settings, read_keys(settings.access), resolve_models(settings))


def resolve_models(settings: EndpointSettings) -> list[RewardModel]:
    """All models, in their order. Needs no Ray.

    Raises a `UserError` for a model that can't be served, or whose engine isn't installed here.
    """
    for served in settings.models:
        if served.endpoint != HERE:
            raise SettingsError(f"{served.model}: an endpoint serves models that run here, and no other endpoint's")
        check_installed(served.engine)
    return [
        resolve_model(served, served.render, tensor_parallel=served.engine.tensor_parallel) for served in settings.models
    ]


def build(
    settings: EndpointSettings,
    keys: Keys,
    models: Sequence[RewardModel],
    handles: Mapping[str, DeploymentHandle[Any]] | None = None,
) -> serve.Application:
    """`app` with keys that were read already, and models that were resolved.

    `handles` are those of models, by their first names, that are applications of their own already: then this is the router.
    """
    # Without a cluster (`serve build` makes a config file on any machine) there are no GPUs to compare with.
    for served, model in zip(settings.models, models, strict=True) if ray.is_initialized() and handles is None else ():
        check_memory(served.engine, model)
    # While a model is scaled to zero, something else must answer probes and Prometheus: each would start a replica.
    if len(models) == 1 and settings.asks_directly:
        memory = _memory(settings.models[0], models[0])
        return _model(settings.models[0], 0, settings.limits).bind(settings, keys, models[0], memory)
    routed = handles or {
        served.names[0]: _model(served, number, settings.limits, ServeActor).bind(
            model, served.render, served.engine, _memory(served, model)
        )
        for number, (served, model) in enumerate(zip(settings.models, models, strict=True))
    }
    deployment: Any = serve.deployment(Router)
    return deployment.options(
        name="router", num_replicas=settings.ingresses, ray_actor_options={"num_cpus": 0.1}, **_options(settings.limits)
    ).bind(settings, keys, models, routed)


def _memory(served: ServedModelSettings, model: RewardModel) -> WithScoreMemory | None:
    """The score store of a model, if it has one. Raises as `open_store`."""
    store = open_score_store(served.store, model, served.engine)
    return None if store is None else store.online


def _model(served: ServedModelSettings, number: int, limits: LimitSettings, replica: type = ModelReplica) -> Any:
    """The deployment of a model. Behind a router of the same application its replicas speak no HTTP (`ServeActor`)."""
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
    deployment: Any = serve.deployment(replica)
    return deployment.options(name=f"model-{number}", ray_actor_options=_resources(served), **_options(limits), **bounds)


def _options(limits: LimitSettings) -> dict[str, Any]:
    return {
        # Above the gate's own limits, which count and explain; Serve's are for the router's calls.
        "max_ongoing_requests": 2 * limits.max_requests + _SPARE,  # as many wait as are under way
        "max_queued_requests": limits.max_requests,
        "backpressure_config": BackpressureConfig(status_code=429, retry_after_s=1.0),
        "graceful_shutdown_timeout_s": DRAIN_S,
        "graceful_shutdown_wait_loop_s": _STOP_LOOP_S,
        "health_check_period_s": 2.0,  # Serve's default is 10: so long a dead engine's replica would get requests
        "logging_config": _LOGGING,
    }


def _resources(served: ServedModelSettings) -> dict[str, Any]:
    """Ray's resources of a replica: the engine's GPUs, and 0.1 CPU, since its work is the engine's."""
    return {"num_cpus": 0.1} | (actor_options(served.engine) if ray.is_initialized() else {})
