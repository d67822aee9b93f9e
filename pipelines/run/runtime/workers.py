"""Runs the tasks of a filter or of an ensemble's combination: a single one in this process, several on Ray.

For a single task, starting Ray would take longer than the task.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from actors.errors import AssayError, RunStopped
from pipelines.data.storage.lease import Ticket, tickets
from pipelines.run.runtime.screens import screen
from pipelines.run.runtime.session import PLACE_S, place_message, ray_session

_TASKS = 1000
"""Maximum tasks submitted to Ray at a time. They queue there for CPUs, and an autoscaler sees the demand."""


class Workers:
    """Runs module-level functions on picklable arguments: here in this process, one after another."""

    def map(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Call the function with each tuple of arguments, and yield the results.

        A subclass may yield them in any order.
        """
        return (function(*call) for call in arguments)


@contextmanager
def workers(tasks: int) -> Iterator[Workers]:
    """Workers for `tasks` concurrent tasks: this process for one, Ray for more."""
    if tasks < 2:
        yield Workers()
        return
    with ray_session():
        yield OnRay()


class OnRay(Workers):
    """Workers on a running Ray. References to objects in its store, as arguments, arrive as these objects.

    After an error, tasks that run go on to their end, and those that wait for a CPU end at their beginning, once the caller
    has given up the leases of its folders. They aren't cancelled: if a task's result is just arriving, `ray.cancel` aborts
    this process (Ray 2.60: "Tried to complete task that was not pending", a failed check in its task_manager.cc).
    """

    _has_waited = False

    def map(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        task: Any = ray.remote(_run_while_held).options(name=getattr(function, "__name__", repr(function)))
        run_tickets = tickets()
        running: list[Any] = []
        # As results come, not as tasks were submitted: a slow task would hold back what is made of the others.
        try:
            for call in arguments:
                if len(running) == _TASKS:
                    done, running = self._wait(running)
                    yield from ray.get(done)
                running.append(task.remote(run_tickets, function, *call))
            while running:
                done, running = self._wait(running)
                yield from ray.get(done)
        except ray.exceptions.RayError as error:
            # A task's exception arrives inside of Ray's `RayTaskError`, as its cause.
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, AssayError) else RunStopped(f"a task failed: {error}")) from error

    def _wait(self, running: list[Any]) -> tuple[list[Any], list[Any]]:
        # As `ray.wait`. Says once that nothing comes: others may hold the CPUs of a cluster for hours.
        done, running = ray.wait(running, timeout=None if self._has_waited else PLACE_S)
        if done:
            return done, running
        self._has_waited = True
        screen(sys.stderr).keep(place_message("the result of a task, which takes a CPU"))
        return ray.wait(running)


def _run_while_held(run_tickets: Sequence[Ticket], function: Callable[..., Any], *arguments: Any) -> Any:
    # A task that waited for a CPU may begin after its run has failed and another run has taken the folder.
    for folder_ticket in run_tickets:
        folder_ticket.check()
    return function(*arguments)
