"""What requests to an endpoint come to: their rate, their tokens, and their price, which a run may bound.

What was spent lies in the run's folder (`spent.json`), so that the bound holds over all sessions. Before a request is sent,
its most is reserved: a prompt has no more tokens than bytes, and an answer no more than it may have. The file is a little
ahead of what was spent, so that a killed session never counts for less than it cost.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from actors.endpoint.client import now
from actors.errors import CostReached
from actors.settings.endpoint import ModelEndpointSettings

NAME = "spent.json"
BYTES_PER_TOKEN = 4
"""Of English text, where nobody counts tokens. For rates and plans alone: a price is bounded by one byte a token."""
# How far the file is written ahead of what is spent or set aside, as a share of the bound: a hundred writes until then, and
# two in each `_WRITE_S`, after which it is written as it is.
_AHEAD = 0.01
# How long the end of a session waits for requests that it has cancelled. Those of a batch go on without it.
_BOOKED_S = 1.0
# How old the file may be while answers come: without a bound, a killed session counts for what it had spent until then.
_WRITE_S = 10.0
_MOST_FINGERPRINTS = 32


class Notes(Protocol):
    """Where an engine keeps what must outlast its process: a folder that nobody else writes."""

    def names(self) -> list[str]:
        """The names of the files."""

    def read(self, name: str) -> bytes:
        """A file's content. Raises `FileNotFoundError`."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, in a single step."""


@dataclass
class Spent:
    """What was asked so far, and what it cost; `ahead` is what a session that was killed may have spent beyond that.

    Requests that may have been answered, and whose answer never came, count with the most that they may have cost.
    """

    requests: int = 0
    prompt_tokens: int = 0
    written_tokens: int = 0
    cost: float = 0.0
    ahead: float = 0.0
    # The first 32 different `system_fingerprint`s of the answers: more than one means that the engine has changed.
    fingerprints: tuple[str, ...] = ()


def read_spent(notes: Notes) -> Spent:
    """What the notes say was spent; nothing without the file."""
    try:
        values = json.loads(notes.read(NAME))
    except FileNotFoundError:
        return Spent()
    return Spent(**{**values, "fingerprints": tuple(values["fingerprints"])})


def usage_of(answer: Any) -> Mapping[str, Any]:
    """The `usage` of an answer, which may be anything; empty without one."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return usage if isinstance(usage, dict) else {}


class Account:
    """Counts what an endpoint is asked for. Used on one event loop."""

    def __init__(self, settings: ModelEndpointSettings, notes: Notes | None, held: Sequence[float] = ()) -> None:
        """`held` is the most that each answer may cost that an earlier session asked for and never read."""
        self._settings = settings
        self._notes = notes
        self._spent = Spent() if notes is None else read_spent(notes)
        self._held = sum(held)
        self._spent.cost += max(0.0, self._spent.ahead - self._held)
        self._written_cost = self._spent.cost + self._held
        self._written_at = -math.inf
        self._under_way = len(held)
        self._writing, self._changed = asyncio.Lock(), asyncio.Condition()

    async def reserve(self, most: float, *, waits: bool = True) -> None:
        """Set the most of a request aside before it is sent. It `waits` for what is under way, which may leave room.

        Raises `CostReached` if the request could exceed the bound.
        """
        bound = self._settings.max_cost
        async with self._changed:
            while bound is not None and self._spent.cost + self._held + most > bound:
                if not waits or self._spent.cost + most > bound or not self._under_way:
                    raise CostReached(
                        f"--max-cost {bound:g} is nearly reached: {self._spent.cost:.4g} was spent, and the next request "
                        f"may cost {most:.4g}; the same command with a higher one goes on"
                    )
                await self._changed.wait()
            self._held += most
            self._under_way += 1
        needed = self._spent.cost + self._held
        if bound is not None and needed > self._written_cost:
            try:
                await self._write(min(bound, needed + _AHEAD * bound))
            except BaseException:  # any: it isn't sent, and others may wait for its room
                self._held = max(0.0, self._held - most)
                self._under_way -= 1
                async with self._changed:
                    self._changed.notify_all()
                raise

    async def settle(self, most: float, answer: Any, *, is_free: bool = False) -> None:
        """Book a request: by the `usage` of its answer, or with its most if it may have been answered without one."""
        async with self._changed:
            self._held = max(0.0, self._held - most)
            self._under_way -= 1
            self._book(answer if isinstance(answer, dict) else {}, 0.0 if is_free else most)
            self._changed.notify_all()
        if now() - self._written_at >= _WRITE_S or not self._under_way:
            self._written_at = now()
            await self._write(self._spent.cost + self._held)

    def _book(self, answer: Mapping[str, Any], otherwise: float) -> None:
        """Add an answer to what was spent, or what it cost `otherwise` if it doesn't say."""
        spent, usage, fingerprint = self._spent, usage_of(answer), answer.get("system_fingerprint")
        prompt, written, total = (usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
        spent.requests += 1
        if isinstance(prompt, int) and isinstance(written, int | None):
            # Some endpoints count reasoning in the total alone, and it is paid like what is written.
            written = max(written or 0, total - prompt if isinstance(total, int) else 0)
            spent.prompt_tokens += prompt
            spent.written_tokens += written
            spent.cost += self._settings.cost(prompt, written)
        else:
            spent.cost += otherwise
        is_new = isinstance(fingerprint, str) and fingerprint not in spent.fingerprints
        if is_new and len(spent.fingerprints) < _MOST_FINGERPRINTS:
            spent.fingerprints = (*spent.fingerprints, str(fingerprint))

    async def close(self) -> None:
        """Wait for the file to hold what was spent.

        Requests that were cancelled are booked first, else they would count with their most; and writes may be under way.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BOOKED_S), self._changed:
                await self._changed.wait_for(lambda: not self._under_way)
        if self._spent.requests:
            await self._write(self._spent.cost + self._held)

    async def _write(self, cost: float) -> None:
        if self._notes is not None:
            # To its end, also if the request is given up: else its thread might write over what a later one has written.
            await asyncio.shield(self._write_in_turn(self._notes, cost))

    async def _write_in_turn(self, notes: Notes, cost: float) -> None:
        async with self._writing:
            self._spent.ahead = max(cost - self._spent.cost, self._held)
            written_cost = self._spent.cost + self._spent.ahead
            self._written_cost = min(self._written_cost, written_cost)  # of what may be there until the write has ended
            await asyncio.to_thread(notes.replace, NAME, json.dumps(asdict(self._spent)).encode())
            self._written_cost = written_cost


class Pace:
    """Lets amounts pass at a rate. Used on one event loop."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_each = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def wait(self, amount: float) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + amount * self._seconds_each
        if turn > now:
            await asyncio.sleep(turn - now)

    def correct(self, amount: float) -> None:
        """Add what an amount turned out to be more than it was thought to be."""
        self._next += amount * self._seconds_each
