"""The bound on crash loops. A ledger outside the engines' processes counts their deaths, and what they died of.

A block of work is entered before an engine gets it and left when its scores are there. A block that is entered again
without having been left has cost an engine its life. Twice, and it is a suspect: its requests run alone, one by one, until
the one that kills is known. What they came to is kept here, so that the next engine begins with the request that the last
one died of. And engines that die again and again without any work done in between end the run.

An engine that went with its node is nobody's fault, and is not counted: spot nodes come and go.
"""

import time
from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

from actors.errors import CrashLoop

SUSPECT = 2
"""Deaths that make work a suspect. One may be the machine's fault."""

_WORDLESS = "their processes ended without a word; the system may have killed them"


class EngineHealth(NamedTuple):
    """Of the engines that were started: those whose nodes are gone, and whether any other has something to do."""

    lost: tuple[str, ...]
    busy: bool


class Begun(NamedTuple):
    """How many engines there have been, one that was started again being one; and when the first worked, as Unix time."""

    engines: int
    at: float | None


class Ledger:
    """Counts deaths. Lives where the driver lives; engines' processes call it across the cluster."""

    def __init__(self, max_deaths: int) -> None:
        self._max_deaths = max_deaths
        self._work_holders: dict[str, str] = {}  # whose each work is
        self._deaths: Counter[str] = Counter()
        self._nodes: dict[str, str] = {}
        self._start_steps: dict[str, str] = {}  # at which step of its start each is
        self._first_ready_at: float | None = None
        self._settled: dict[str, list[Any]] = {}
        self._deaths_in_row = 0
        self._restarts = 0
        self._last_error = ""

    def starting(self, holder: str, node: str, alive: Collection[str]) -> bool:
        """An engine's process starts on a node; returns whether one of this holder did before, and so must have died.

        `alive` are the nodes that there are. Raises `CrashLoop` if engines died too often without any work in between.
        """
        again = holder in self._nodes
        if again and self._nodes[holder] not in alive:
            self._work_holders = {work: whose for work, whose in self._work_holders.items() if whose != holder}
            self._last_error = "its node went away"
        else:
            self._deaths_in_row += again
        self._restarts += again
        self._nodes[holder] = node
        self._start_steps[holder] = ""
        if self._deaths_in_row >= self._max_deaths:
            cause = self._last_error or _WORDLESS
            self._last_error = (
                f"engines died {self._deaths_in_row} times with no work done in between. The last error: {cause}"
            )
            raise CrashLoop(self._last_error)
        return again

    def step(self, holder: str, step: str) -> None:
        """The next step of an engine's start begins."""
        self._start_steps[holder] = step

    def loading(self) -> list[str]:
        """The steps at which engines are that don't work yet, the longest started first."""
        return [step for step in self._start_steps.values() if step]

    def ready(self, holder: str) -> None:
        """The engine works."""
        self._start_steps.pop(holder, None)
        self._first_ready_at = self._first_ready_at or time.time()

    def standing(self, alive: Collection[str]) -> EngineHealth:
        """How engines stand, if `alive` are the nodes that there are."""
        lost = {holder for holder, node in self._nodes.items() if node not in alive}
        return EngineHealth(tuple(sorted(lost)), bool((self._start_steps.keys() | set(self._work_holders.values())) - lost))

    def begun(self) -> Begun:
        """What engines there have been."""
        return Begun(len(self._nodes), self._first_ready_at)

    def deaths(self, work: str) -> int:
        """How many engines this work has cost; asked before entering, when earlier work still open is dead work."""
        return self._deaths[work] + (work in self._work_holders)

    def enter(self, work: str, holder: str) -> None:
        """An engine gets this work now."""
        if work in self._work_holders:
            self._deaths[work] += 1
        self._work_holders[work] = holder

    def leave(self, work: str) -> None:
        """The work is done, and the engine alive."""
        self._work_holders.pop(work, None)
        self._settled.pop(work, None)
        self._deaths_in_row = 0

    def settled(self, work: str) -> list[Any]:
        """What the first requests of a suspect came to, one after another, in this or an earlier process."""
        return list(self._settled.get(work, []))

    def settle(self, work: str, outcome: Any) -> None:
        """What the next request of a suspect came to: scores, or that it kills engines."""
        self._settled.setdefault(work, []).append(outcome)

    def died(self, error: str) -> None:
        """The last words of an engine's process."""
        self._last_error = error

    def restarts(self) -> tuple[int, str]:
        """How many engines were started in the place of a dead one, and what the last of these died of."""
        return self._restarts, self._last_error or _WORDLESS

    def last_error(self) -> str:
        """What the last engine died of, as far as it could say."""
        return self._last_error
