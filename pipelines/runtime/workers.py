"""Where the tasks of a filter run, or those that combine an ensemble: in this process, or on Ray.

For a task alone, starting Ray would take longer than it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import ray

from actors.errors import AssayError, RunStopped
from pipelines.runtime.session import ray_session

_TASKS = 1000
"""Tasks given to Ray at a time. They wait there for a CPU, and a cluster that can grow sees how many are asked for."""


class Workers(Protocol):
    """Runs functions that live at the top of a module, on arguments that can be pickled."""

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The results, in no order."""

    def start(self, function: Callable[..., Any], *arguments: Any, pieces: int) -> list[Any]:
        """Start a function that returns a list of `pieces`; each may be an argument of a later call, and only that."""


@contextmanager
def workers(tasks: int) -> Iterator[Workers]:
    """Workers for so many tasks at a time."""
    if tasks < 2:
        yield _Here()
        return
    with ray_session():
        yield OnRay()


class _Here:
    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        for own in arguments:
            yield function(*own)

    def start(self, function: Callable[..., Any], *arguments: Any, pieces: int) -> list[Any]:
        found: list[Any] = function(*arguments)
        assert len(found) == pieces
        return found


class OnRay:
    """Workers on a Ray that is there. References among the arguments arrive as what they stand for."""

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """See `Workers`."""
        task = ray.remote(function)
        running: list[Any] = []
        try:
            for own in arguments:
                if len(running) == _TASKS:
                    done, running = ray.wait(running)
                    yield from ray.get(done)
                running.append(task.remote(*own))
            while running:
                done, running = ray.wait(running)
                yield from ray.get(done)
        except ray.exceptions.RayError as error:
            for waiting in running:
                ray.cancel(waiting)
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, AssayError) else RunStopped(f"a task failed: {error}")) from error

    def start(self, function: Callable[..., Any], *arguments: Any, pieces: int) -> list[Any]:
        """See `Workers`."""
        if pieces == 1:  # Ray would give the list as one
            return [ray.remote(_only).remote(function, *arguments)]
        task: Any = ray.remote(function)
        return list(task.options(num_returns=pieces).remote(*arguments))


def _only(function: Callable[..., Any], *arguments: Any) -> Any:
    (found,) = function(*arguments)
    return found
