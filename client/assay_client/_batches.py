"""Items of many calls, sent in few requests. All of it lives in one event loop: nothing here needs a lock."""

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import httpx

from assay_client._reward import Reward
from assay_client._wire import Failure, Item, Route, read_answer

_CONNECT_S = 10.0  # an address that drops packets fails then, and is tried again, long before the deadline
_LONGEST_PAUSE_S = 30.0
_RESTART_S = 120.0  # an endpoint that restarts needs half a minute and more for its engine, and takes no connections
_UNSENT_PAUSE_S = 1.0
_MOST_BYTES = 2**22  # of a request's items: a quarter of what an endpoint takes by default (`limits.max_body_bytes`)
CLOSED = Failure("closed", "the client was closed")


@dataclass(frozen=True)
class Settings:
    """How to ask; `Client` says what each means."""

    url: str
    timeout: float
    retries: int
    max_in_flight: int
    batch: int
    wait_ms: float


@dataclass
class _Waiting:
    item: Item
    deadline: float
    rewards: "asyncio.Future[list[Reward]]"
    failure: Failure | None = None  # the last one after which it is sent again

    def settle(self, rewards: list[Reward]) -> None:
        if not self.rewards.done():
            self.rewards.set_result(rewards)


class Batches:
    """What waits to be sent, and what is under way."""

    def __init__(self, settings: Settings, route: Route, headers: dict[str, str]) -> None:
        self.loop = asyncio.get_running_loop()
        self._settings, self._route = settings, route
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            headers={"Content-Type": "application/json", **headers},
            timeout=httpx.Timeout(None, connect=_CONNECT_S),  # what takes too long, the deadlines of the calls end
            limits=httpx.Limits(max_connections=settings.max_in_flight),
        )
        self._queue: deque[_Waiting] = deque()
        self._slots = asyncio.Semaphore(settings.max_in_flight)  # halves of a batch are requests, too
        self._under_way: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, items: Sequence[Item], timeout_s: float) -> list[Reward]:
        """The rewards of all responses, in order; those that aren't there in time are missing."""
        deadline = self.loop.time() + timeout_s
        waiting = [_Waiting(item, deadline, self.loop.create_future()) for item in items]
        self._queue.extend(waiting)
        # At once when a request is full; else others have `wait_ms` to join. By items: most have one response.
        if len(self._queue) >= self._settings.batch:
            self._send_all()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._settings.wait_ms / 1000, self._send_all)
        try:
            if waiting:
                await asyncio.wait([each.rewards for each in waiting], timeout=timeout_s)
            rewards = [each.rewards.result() if each.rewards.done() else _fail_late(each, timeout_s) for each in waiting]
            return [reward for of_item in rewards for reward in of_item]
        finally:  # nobody waits for them any more, whether they are late or the caller is gone
            for each in waiting:
                each.rewards.cancel()

    async def close(self) -> None:
        _settle(self._queue, CLOSED)
        self._queue.clear()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._http.aclose()

    def _send_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while len(self._under_way) < self._settings.max_in_flight and (batch := self._take()):
            task = self.loop.create_task(self._send(batch))
            self._under_way.add(task)
            task.add_done_callback(partial(self._finish, batch))
            _cancel_when_settled(task, batch)

    def _take(self) -> list[_Waiting]:
        """The next items of a request: at most `batch` responses and 4 MiB, but for an item that alone has more."""
        batch: list[_Waiting] = []
        room, bytes_left = self._settings.batch, _MOST_BYTES
        while self._queue:
            waiting = self._queue[0]
            if batch and (waiting.item.count > room or waiting.item.size > bytes_left):
                break
            self._queue.popleft()
            if not waiting.rewards.done():
                batch.append(waiting)
                room -= waiting.item.count
                bytes_left -= waiting.item.size
        return batch

    def _finish(self, batch: Sequence[_Waiting], task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        for waiting in batch:
            if error is not None and not waiting.rewards.done():  # a mistake of this module: it is the caller's to see
                waiting.rewards.set_exception(error)
        _settle(batch, CLOSED)
        self._send_all()

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        """Ask until there are rewards, or nothing is left to try."""
        failures = 0
        first_unsent_s: float | None = None
        while batch := [waiting for waiting in batch if not waiting.rewards.done()]:
            async with self._slots:
                answer = await self._post(batch)
            if isinstance(answer, list):
                for waiting, rewards in zip(batch, answer, strict=True):
                    waiting.settle(rewards)
                return
            if answer.splits and len(batch) > 1:
                # What is refused may be a single conversation, which must not fail its neighbours.
                # At once: one after the other, a judge's seconds would add up in each half of a half.
                middle = len(batch) // 2
                await asyncio.gather(self._send(batch[:middle]), self._send(batch[middle:]))
                return
            now_s = self.loop.time()
            first_unsent_s = (first_unsent_s or now_s) if answer.is_unsent else None
            is_gone = first_unsent_s is not None and now_s >= first_unsent_s + _RESTART_S
            # Who was asked to come again hasn't failed, and goes on until the deadline; but whose replica has ended may be
            # why it did, and would end one after the other.
            failures += answer.after_s is None or answer.reason == "replica_gone"
            if not answer.again or is_gone or failures > self._settings.retries:
                _settle(batch, answer)
                return
            for waiting in batch:
                waiting.failure = answer
            await asyncio.sleep(_pause_s(answer.after_s, failures))

    async def _post(self, batch: Sequence[_Waiting]) -> list[list[Reward]] | Failure:
        items = [waiting.item for waiting in batch]
        # The latest deadline of the batch: whoever's is earlier gives up by itself, and the others have their rewards.
        left_s = max(waiting.deadline for waiting in batch) - self.loop.time()
        headers = {"X-Timeout-Seconds": f"{max(left_s, 0.001):.3f}"}
        try:
            answer = await self._http.post(self._route.path, content=self._route.body(items), headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"{type(error).__name__}: {error}"
            return Failure("unreachable", message, after_s=_UNSENT_PAUSE_S, is_unsent=True)
        except httpx.RequestError as error:
            return Failure("unreachable", f"{type(error).__name__}: {error}")
        return read_answer(answer, self._route, items)


def _settle(batch: Iterable[_Waiting], failure: Failure) -> None:
    for waiting in batch:
        waiting.settle(failure.rewards(waiting.item.count))


def _fail_late(waiting: _Waiting, timeout_s: float) -> list[Reward]:
    cause = f"; before: {waiting.failure.reason} ({waiting.failure.message})" if waiting.failure else ""
    return Failure("deadline", f"there was no answer within {timeout_s:g} s{cause}").rewards(waiting.item.count)


def _cancel_when_settled(task: "asyncio.Task[None]", batch: Sequence[_Waiting]) -> None:
    """End a request as soon as none of its callers waits: the engine has others to serve."""
    open_count = len(batch)

    def count_down(_: object) -> None:
        nonlocal open_count
        open_count -= 1
        if not open_count:
            task.cancel()

    for waiting in batch:
        waiting.rewards.add_done_callback(count_down)


def _pause_s(after_s: float | None, failures: int) -> float:
    """Seconds before the next try: as asked, and up to half as long again; or by chance, up to a bound that doubles."""
    if after_s is not None:
        return random.uniform(1.0, 1.5) * max(after_s, 0.1)
    # From 0 on: clients that failed at the same moment must not come again at the same moment.
    return random.uniform(0.0, min(_LONGEST_PAUSE_S, 0.25 * 2**failures))
