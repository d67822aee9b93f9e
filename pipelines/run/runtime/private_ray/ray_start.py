"""Starts Ray for a run: with retries on a busy machine, and, if the Ray is private, without processes that aren't needed.

A private Ray serves one driver, has no dashboard, and forwards no logs. Of the five Python processes that Ray starts beside
its two in C++, three are only for these: the dashboard's server (1.3 s of CPU during the start), the autoscaler's monitor
and the log monitor (0.6 s each). They aren't started.

The others get process groups of their own: `timeout`, a shell or a scheduler that stops a run by a signal to its group
would stop Ray as well, and a driver whose Ray is gone waits a minute for it and is then ended by it, with its folder still
held and without a message. (Ray's processes end with the driver, whatever ends that.)

`ray.init` has no options for this, so some of Ray's attributes are replaced while it runs.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray._private import node, parameter, ray_constants, services

from actors.errors import RunStopped
from actors.timeline import mark
from pipelines.run.runtime.private_ray import ray_worker

_ATTEMPTS = 3


def start_ray(**options: Any) -> Any:
    """`ray.init` with up to three attempts: it gives a new cluster 30 s to start, and a busy machine takes longer.

    Returns Ray's context. Raises `RunStopped` if Ray doesn't start.
    """
    mark("Ray")
    # Any exception: Ray raises RuntimeError, ConnectionError, TimeoutError and its own for a node that isn't up in time.
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with _adapt_ray(with_dashboard=options.get("include_dashboard") is not False):
                return ray.init(**options)
        except Exception as error:
            ray.shutdown()
            if attempt == _ATTEMPTS:
                raise RunStopped(f"Ray didn't start in {_ATTEMPTS} attempts; the last error: {error}") from error
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _adapt_ray(with_dashboard: bool) -> Iterator[None]:
    """Adapt a private Ray that is started in this block; joining an existing cluster isn't affected.

    Ray joins `SETUP_WORKER_FILENAME` to a folder of its own; joining an absolute path to a folder gives the absolute path.
    """
    without_monitors: dict[str, Any] = {"include_log_monitor": False, "no_monitor": True}
    replaced: list[tuple[Any, str, Any]] = [
        (ray_constants, "SETUP_WORKER_FILENAME", str(Path(ray_worker.__file__).resolve())),
        (parameter, "RayParams", functools.partial(parameter.RayParams, **without_monitors)),
        (services, "ConsolePopen", functools.partial(services.ConsolePopen, process_group=0)),
    ]
    if not with_dashboard:
        replaced.append((node.Node, "start_api_server", lambda *_, **__: None))
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)
