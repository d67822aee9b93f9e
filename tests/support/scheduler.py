"""Gives the tests of a process that crashed to the others.

pytest-xdist 3.8 gives back all files that the process had, those that were done, too. A file without a test that is left
gets no answer from the process that it is sent to, which then waits for ever, and the run with it. The test that crashed is
given back, too, and would bring down one process after another.
"""

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler | None:
    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None
