"""Gives the tests of a process that crashed to the others.

pytest-xdist 3.8 gives back all files that the process had, those that were done, too. A file without a test that is left
gets no answer from the process that it is sent to, which then waits for ever, and the run with it. The test that crashed is
given back, too, and would bring down one process after another. And a file that is sent to a process that has just crashed
ends the whole run with "cannot send (already closed?)". And a process runs a test only when it knows the next one, or that
there is none: the process that replaces a crashed one can be given a single test that was left of a file, and waits.
"""

from contextlib import suppress
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class Scheduler(LoadFileScheduling):
    """Distributes files over processes."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Give back what a process had left, but for the test that it crashed in, which is returned."""
        files = self.assigned_work.pop(node)
        pending = [test for tests in files.values() for test, is_done in tests.items() if not is_done]
        if not pending:
            return None
        crashed = pending[0]
        files[self._split_scope(crashed)][crashed] = True
        self.workqueue.update({file: tests for file, tests in files.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Send a process its next file. If the process has crashed, `remove_node` gives the file back."""
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Send a process files until it has two tests to run, or shut it down if there are no more."""
        if node not in self.registered_collections:
            return  # It still collects; its turn comes when it is done.
        super()._reschedule(node)
        if not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler | None:
    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None
