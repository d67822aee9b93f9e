"""How Ray is started for a run: more than once where a machine is busy, and, on this machine alone, with less around it.

A Ray of our own is for one driver, has no dashboard, and its log goes nowhere. Of the five Python processes that Ray starts
beside its two in C++ three would be for that: the dashboard's server (1.3 s of CPU before Ray stands), the monitor of an
autoscaler and that of logs (0.6 s each). They stay away. `ray.init` has no options for this, so that its own parts are
replaced while it runs.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray._private import node, parameter, ray_constants

from actors.errors import RunStopped
from actors.timeline import mark
from pipelines.runtime import ray_worker

_ATTEMPTS = 3


def start_ray(**options: Any) -> Any:
    """`ray.init`, more than once: it gives a new cluster 30 s to start, and a busy machine takes longer.

    Returns what Ray says of it. Raises `RunStopped` if Ray doesn't start.
    """
    mark("Ray")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with _adapted(with_dashboard=options.get("include_dashboard") is not False):
                return ray.init(**options)
        except Exception as error:
            ray.shutdown()
            if attempt == _ATTEMPTS:
                raise RunStopped(f"Ray doesn't start: {error}") from error
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _adapted(with_dashboard: bool) -> Iterator[None]:
    """What is started in this block is a Ray of our own; a cluster that is there is joined as ever.

    The program that starts workers is joined to a folder of Ray's; joined to any folder, an absolute path is itself.
    """
    program = str(Path(ray_worker.__file__).resolve())
    less: dict[str, Any] = {"include_log_monitor": False, "no_monitor": True}
    with contextlib.ExitStack() as replaced:
        replaced.enter_context(_replaced(ray_constants, "SETUP_WORKER_FILENAME", program))
        replaced.enter_context(_replaced(parameter, "RayParams", functools.partial(parameter.RayParams, **less)))
        if not with_dashboard:
            replaced.enter_context(_replaced(node.Node, "start_api_server", lambda *_, **__: None))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
