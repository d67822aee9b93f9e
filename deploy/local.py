"""Runs an endpoint until a signal ends it: on a private Ray of this machine, or on the cluster that RAY_ADDRESS names."""

import contextlib
import json
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from actors.errors import RunStopped, SettingsError
from actors.reward_model import RewardModel
from actors.timeline import mark
from deploy.api import paths
from deploy.app import DRAIN_S, build, resolve_models
from deploy.ray_serve import haproxy
from deploy.ray_serve.port import reserved
from deploy.settings import AddressSettings, EndpointSettings
from deploy.web.auth import Keys, check_reach, read_keys
from pipelines.run.runtime.session import check_stopped, ray_session

NAME = "assay"
_KEEP_ALIVE_S = 65  # longer than the 60 s of most load balancers, which would else reuse a connection as it is closed
_LOOK_S = 0.1  # seconds between two looks at an application that ends
_EXAMPLE = {"conversations": [{"messages": [{"role": "user", "content": "What is 3 + 4?"}], "responses": ["7", "9"]}]}


def run(settings: EndpointSettings, address: AddressSettings, notify: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then finish requests under way. Raises `UserError`; `RunStopped` if it can't start."""
    shutdown: Any = serve.shutdown
    keys = read_keys(settings.access)
    check_reach(keys, settings.access, [address.host])
    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # a line for each deployment, between our own
    with contextlib.ExitStack() as silence, contextlib.ExitStack() as opened:
        # The port first: what it is refused for is known in a millisecond, and an engine's start takes half a minute.
        port = opened.enter_context(reserved(address.host, address.port))
        models = resolve_models(settings)  # before Ray starts, so that a mistake costs seconds
        # A private Ray's replicas are reached from this machine alone, wherever HAProxy listens.
        private = "RAY_ADDRESS" not in os.environ and not ray.is_initialized()
        if private:
            opened.enter_context(haproxy.in_front(address.host))
        opened.enter_context(ray_session(with_vllm=any(model.engine.is_vllm for model in settings.models)))
        _check_alone()
        names = ", ".join(model.names[0] for model in settings.models)
        notify(f"starting {names}: an engine takes half a minute and more ...")
        try:
            _start(
                settings, keys, models,
                HTTPOptions(host="127.0.0.1" if private else address.host, port=port, keep_alive_timeout_s=_KEEP_ALIVE_S),
            )  # fmt: skip
            notify(_ready_text(settings, f"http://{address.host}:{port}", keyed=bool(keys)))
            _until_stopped()
            notify(f"stopping: requests under way are finished first, for up to {DRAIN_S:g} s; Ctrl-C again ends them ...")
            mark("stop")
            _finish()
        finally:
            mark("Serve ends")
            # Until Ray has ended: a thread of its prints which of Serve's actors it has killed, some time after it did.
            devnull = silence.enter_context(open(os.devnull, "w"))
            silence.enter_context(contextlib.redirect_stdout(devnull))
            shutdown()
            mark("Ray ends")
    mark("end")


def _check_alone() -> None:
    """Raise `SettingsError` if Serve runs applications on this cluster: `serve.shutdown` would end them all."""
    if applications := sorted(serve.status().applications):
        raise SettingsError(
            f"Ray Serve runs {', '.join(applications)} on this cluster already: end that with `serve shutdown`, or leave "
            "out RAY_ADDRESS for a Ray of this command's own"
        )


def _start(settings: EndpointSettings, keys: Keys, models: Sequence[RewardModel], options: HTTPOptions) -> None:
    """Start the application, and before it, of several models, each as an application with a path of its own.

    Of models that scale to zero there are none, as nothing would answer there meanwhile, nor where rollouts must meet.
    """
    try:
        serve.start(http_options=options)
        handles: dict[str, DeploymentHandle[Any]] = {}
        if len(models) > 1 and settings.asks_directly:
            targets = [
                serve.RunTarget(
                    build(settings.model_copy(update={"models": (served,)}), keys, [model]),
                    f"{NAME}-{number}",
                    f"/models/{path_name(served.names[0])}",
                )
                for number, (served, model) in enumerate(zip(settings.models, models, strict=True))
            ]
            started = serve.run_many(targets)  # at once: their engines start side by side
            handles = {served.names[0]: handle for served, handle in zip(settings.models, started, strict=True)}
        serve.run(build(settings, keys, models, handles or None), name=NAME, route_prefix="/")
    except KeyboardInterrupt:
        raise
    except Exception as error:  # Serve raises a RuntimeError with all its logs in the message
        raise RunStopped(f"the endpoint failed to start: {_cause(error)}") from error


def path_name(name: str) -> str:
    """A model's name in its path: letters, digits and `._-/`, others as `_`."""
    return re.sub(r"[^A-Za-z0-9._/-]+", "_", name).strip("./")


def _cause(error: Exception) -> str:
    """The last line with an error in what Serve reports of deployments; before it are Serve's text and a traceback."""
    try:
        states = serve.status().applications.values()
        deployments = [deployment.message for state in states for deployment in state.deployments.values()]
        messages = list(filter(None, deployments)) or [state.message for state in states]
    except Exception:  # noqa: BLE001  Serve has no status to ask for: the first error is all there is
        messages = [str(error)]
    # A replica's traceback ends with the error that it failed by; its lines before are Ray's and Serve's own.
    lines = [line.strip() for message in messages for line in message.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else str(error))


def _finish() -> None:
    """Finish the requests under way, then end the application, both in `DRAIN_S`. What is left then is ended with Serve.

    `serve.shutdown` alone would end the proxies first, and with them the connections that wait for an answer.
    """
    deadline = time.monotonic() + DRAIN_S
    names = sorted(serve.status().applications)  # the router's is the first, with its requests to the others
    for name in names:
        with contextlib.suppress(DeploymentUnavailableError, TimeoutError):  # without a replica there are no requests
            left_s = max(0.0, deadline - time.monotonic())
            serve.get_app_handle(name).broadcast("drain").results(timeout_s=left_s, return_exceptions=True)
    mark("application ends")
    delete: Any = serve.delete
    for name in names:
        delete(name, _blocking=False)  # a blocking call looks once a second
    while serve.status().applications and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _ready_text(settings: EndpointSettings, url: str, *, keyed: bool) -> str:
    model = {} if len(settings.models) == 1 else {"model": settings.models[0].names[0]}
    key = ' -H "Authorization: Bearer $ASSAY_API_KEY"' if keyed else ""
    body = json.dumps(model | _EXAMPLE)
    routes = f"  POST {', '.join(paths('POST'))}\n  GET  {', '.join(paths('GET'))}, /docs, and / for the page"
    curl = f"curl {url}/v1/rewards -H 'Content-Type: application/json'{key} -d '{body}'"
    return f"\nready at {url}\n{routes}\n\n  {curl}\n\nCtrl-C stops it."


def _until_stopped() -> None:
    """Wait for a signal. `ray_session` has handlers for SIGINT and SIGTERM, after which `check_stopped` raises."""
    try:
        while True:
            signal.pause()
            check_stopped()
    except KeyboardInterrupt:
        return
