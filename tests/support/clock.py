"""A loop for tests of limits that are minutes: time passes on it only while it waits, and then at once."""

import asyncio
import selectors


class Idle(selectors.SelectSelector):
    """Passes the time that a loop would wait without waiting."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed_s += max(0.0, timeout or 0.0)
        return super().select(0)


class Clock(asyncio.SelectorEventLoop):
    """A loop on which hours pass at once, and nothing that the machine does takes time."""

    def __init__(self) -> None:
        self._idle = Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.passed_s
