"""An event loop with virtual time, for tests of limits that are minutes: waiting takes no time, and only waiting does."""

import asyncio
import selectors


class Idle(selectors.SelectSelector):
    """A selector that returns at once, and adds the time-out that it was given to its clock."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed_s += max(0.0, timeout or 0.0)
        return super().select(0)


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time is that of `Idle`: a sleep of hours returns at once, and computing takes no time."""

    def __init__(self) -> None:
        self._idle = Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.passed_s
