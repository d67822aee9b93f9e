"""The bound on crash loops: a ledger outside the engines' processes counts their deaths, and keeps the causes.

A block of work is entered before an engine gets it, and left when its scores are returned. A block that is entered again
without having been left has killed an engine. After two deaths it is a suspect: its requests run alone, one by one, until
the killer is found. Their results are kept here, so that the engine after a death goes on with the request that killed the
last one. An engine that dies `max_deaths` times in a row, without any work done in between, ends the run.

Killers are often neighbours: the turns of a conversation, the longest rows of a sorted corpus. So before a request is called
a killer, the engine answers one that was answered before (the witness, kept here): that ends the row of deaths if it is the
request that kills, and goes on with it if it is the engine that dies of everything.

An engine that is lost with its node isn't counted, neither against its work nor in a row: spot nodes come and go.

A call whose answer is lost on the way is repeated, so every method changes nothing if the same process calls it again.
"""

import time
from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

from actors.errors import CrashLoop
from actors.scorers.batch_noise import BatchNoise, largest_noise

SUSPECT = 2  # deaths that make work a suspect: a single one may be the machine's fault

_MAX_WARNINGS = 100
_WORDLESS = "their processes ended without an error message; the system may have killed them (out of memory?)"


def name_item(work: str, number: int) -> str:
    """The name under which an item of suspect work is entered by itself."""
    return f"{work}/{number}"


class EngineHealth(NamedTuple):
    """Of the engines that were started: those whose nodes are gone, and of the others those that are starting or working.

    Engines that Ray Data has removed since are among them: the ledger isn't told.
    """

    lost: tuple[str, ...]
    busy: tuple[str, ...]


class EngineStarts(NamedTuple):
    """The number of engines, restarts not counted, and the Unix time at which the first of them was ready.

    `noise` is their noise of batching; None while none has measured it. `answered` requests have left them, and `under_way`
    are in them, as they said it last: of a judge each vote is a request.
    """

    engines: int
    at: float | None
    noise: BatchNoise | None = None
    answered: int = 0
    under_way: int = 0


class StartStep(NamedTuple):
    """What an engine that isn't ready yet does, and the id of its node."""

    step: str
    node: str


class _Process(NamedTuple):
    id: str
    is_restart: bool  # an earlier process of the same engine has died


class _Entry(NamedTuple):
    # Who has the work: an engine, and its process, empty if that never noted its start.
    holder: str
    process: str


class Ledger:
    """Counts deaths. Lives where the driver lives; engines' processes call it across the cluster."""

    def __init__(self, max_deaths: int) -> None:
        self._max_deaths = max_deaths
        self._entries: dict[str, _Entry] = {}  # of work that is entered, and not left yet
        self._deaths: Counter[str] = Counter()
        self._processes: dict[str, _Process] = {}  # the last of each engine
        self._nodes: dict[str, str] = {}
        self._start_steps: dict[str, str] = {}  # of engines that aren't ready yet
        self._first_ready_at: float | None = None
        self._results: dict[str, list[Any]] = {}
        self._witness: Any = None
        self._deaths_in_row: Counter[str] = Counter()  # of each engine
        self._restarts = 0
        self._last_error = ""
        self._warnings: dict[str, None] = {}  # as an ordered set
        self._noises: dict[str, BatchNoise] = {}  # of each engine
        self._loads: dict[str, tuple[int, int]] = {}  # of each engine's last process

    def note_start(self, holder: str, process: str, node: str, alive: Collection[str]) -> bool:
        """Note that a process of an engine starts on a node; returns whether it is a restart, after a death.

        `alive` are the nodes of the cluster. Raises `CrashLoop` after `max_deaths` deaths of the engine without any work, by
        whichever engine, in between.
        """
        previous = self._processes.get(holder)
        if previous is None or previous.id != process:
            self._count_start(holder, node, alive)
            self._processes[holder] = _Process(process, is_restart=previous is not None)
        if self._deaths_in_row[holder] >= self._max_deaths:
            raise CrashLoop(self._last_error)
        return self._processes[holder].is_restart

    def _count_start(self, holder: str, node: str, alive: Collection[str]) -> None:
        is_restart = holder in self._nodes
        if is_restart and self._nodes[holder] not in alive:
            # The node went away: its work is taken off the list, or entering it again would count as a death.
            self._entries = {work: entry for work, entry in self._entries.items() if entry.holder != holder}
            self._last_error = "its node went away"
        else:
            # Of each engine by itself: where killers are neighbours, all engines may die of some at the same time.
            self._deaths_in_row[holder] += is_restart
        self._restarts += is_restart
        self._nodes[holder] = node
        self._start_steps[holder] = ""
        if self._deaths_in_row[holder] >= self._max_deaths:
            cause = self._last_error or _WORDLESS
            self._last_error = (
                f"an engine died {self._deaths_in_row[holder]} times with no work done in between. If it is the first "
                f"rows that kill it, --set max_engine_deaths=... with more gets past them. The last error: {cause}"
            )

    def note_start_step(self, holder: str, step: str) -> None:
        self._start_steps[holder] = step

    def list_start_steps(self) -> list[StartStep]:
        return [StartStep(step, self._nodes[holder]) for holder, step in self._start_steps.items() if step]

    def note_ready(self, holder: str) -> None:
        self._start_steps.pop(holder, None)
        self._first_ready_at = self._first_ready_at or time.time()

    def engine_health(self, alive: Collection[str]) -> EngineHealth:
        """Which engines are lost, and which others are busy, if `alive` are the nodes of the cluster."""
        lost = {holder for holder, node in self._nodes.items() if node not in alive}
        working = {entry.holder for entry in self._entries.values()}
        return EngineHealth(tuple(sorted(lost)), tuple(sorted((self._start_steps.keys() | working) - lost)))

    def engine_starts(self) -> EngineStarts:
        """The number of engines so far, when the first was ready, their noise of batching, and their load."""
        answered, under_way = (sum(load[place] for load in self._loads.values()) for place in (0, 1))
        noise = largest_noise(self._noises.values())
        return EngineStarts(len(self._nodes), self._first_ready_at, noise, answered, under_way)

    def deaths(self, work: str) -> int:
        """How many engines this work has killed. Called before it is entered: if it is still open, its engine has died."""
        return self._deaths[work] + (work in self._entries)

    def enter(self, work: str, holder: str) -> None:
        # Entered by another process and not left: that has died. A row that kills engines costs four of them, two with its
        # block and then two by itself; a second such row of the block costs two more.
        process = self._processes.get(holder)
        entry = _Entry(holder, process.id if process else "")
        if self._entries.get(work, entry) != entry:
            self._deaths[work] += 1
        self._entries[work] = entry

    def leave(self, work: str, answered: Any = None) -> None:
        """Note that the work is done. `answered` is an item of it that the engine itself has answered; None: there is none.

        With one, the rows of deaths end, of all engines: what the work needs is there, and the model can do it.
        """
        self._entries.pop(work, None)
        self._results.pop(work, None)
        if answered is not None:
            self._deaths_in_row.clear()
            self._witness = answered if self._witness is None else self._witness

    def witness(self) -> Any:
        return self._witness

    def results(self, work: str) -> list[Any]:
        """The results of a suspect's first requests, in their order, from this or an earlier process."""
        return list(self._results.get(work, []))

    def add_result(self, work: str, number: int, result: Any) -> None:
        """Keep the result of a suspect's request by its number, from 0: its scores, or that it failed as a killer."""
        self._results.setdefault(work, [])[number : number + 1] = [result]
        # Of a killer: nobody leaves what its last process had entered, and the engine would seem to be busy for ever.
        self._entries.pop(name_item(work, number), None)

    def note_noise(self, holder: str, noise: BatchNoise) -> None:
        self._noises[holder] = noise

    def note_load(self, holder: str, answered: int, under_way: int) -> None:
        self._loads[holder] = answered, under_way

    def note_error(self, error: str) -> None:
        self._last_error = error

    def warn(self, text: str) -> None:
        """Keep a warning for the user; of more than `_MAX_WARNINGS` different ones the first."""
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings[text] = None

    def warnings(self) -> list[str]:
        return list(self._warnings)

    def restarts(self) -> tuple[int, str]:
        """How many engines were restarted after a death, and the last cause."""
        return self._restarts, self._last_error or _WORDLESS

    def last_error(self) -> str:
        return self._last_error
