"""Threads that take turns: one works at a time, and whoever waits longest comes next."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SLICE_S = 0.01  # how long a thread works before it lets others: a switch takes about 0.05 ms


class FairTurns:
    """Turns by numbered tickets, so that a short piece of work needn't wait for the end of a long one.

    A plain lock isn't fair: a thread that releases it and takes it again mostly gets it before those that wait.
    """

    def __init__(self) -> None:
        self._served = threading.Condition()
        self._given = self._serving = 0
        self._since = 0.0

    def take_if_free(self) -> bool:
        """Have a turn, if nothing works and nothing waits for one, and say whether; whoever has it calls `leave`."""
        with self._served:
            is_free = self._given == self._serving
            self._given += is_free
        return is_free

    @contextmanager
    def taken(self) -> Iterator[None]:
        self._take()
        try:
            yield
        finally:
            self.leave()

    def give_way(self) -> None:
        """Let the others that wait have a turn each, if this one has lasted."""
        # The ticket that is served is one of those given: a second one is somebody else's.
        if self._given - self._serving > 1 and time.monotonic() - self._since > _SLICE_S:
            self.leave()
            self._take()

    def _take(self) -> None:
        with self._served:
            ticket, self._given = self._given, self._given + 1
            self._served.wait_for(lambda: self._serving == ticket)
        self._since = time.monotonic()

    def leave(self) -> None:
        with self._served:
            self._serving += 1
            self._served.notify_all()  # each waits for a number of its own, so all must look
