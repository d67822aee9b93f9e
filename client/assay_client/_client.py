"""The client, for callers with and without an event loop."""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any

from assay_client._batches import CLOSED, Batches, Settings
from assay_client._reward import Reward
from assay_client._wire import Item, Route, read_conversation, read_rewards

URL, KEY, MODEL, PRINCIPLE = "ASSAY_URL", "ASSAY_API_KEY", "ASSAY_MODEL", "ASSAY_PRINCIPLE"


class Client:
    """Asks an endpoint from any thread, task or forked process; in a pickle it is its settings.

    A key that isn't given is read from the environment where it is needed, and so is in no pickle.
    """

    def __init__(
        self, url: str | None = None, model: str | None = None, key: str | None = None, *, timeout: float = 600.0,
        retries: int = 5, max_in_flight: int = 8, batch: int = 128, wait_ms: float = 3.0, route: Route | None = None,
        principles: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Without `url`, `model` or `key` those in ASSAY_URL, ASSAY_MODEL and ASSAY_API_KEY; the last two may be missing.

        `timeout` is the deadline of a call, in seconds; `retries` how often a request that failed is sent again. 429 and 503
        with `Retry-After` don't count, nor, for up to 120 s, that nobody takes the connection. A request has at most `batch`
        responses and 4 MiB, and waits `wait_ms` milliseconds for others to join; `max_in_flight` are under way at a time.
        `principles`, or the one in ASSAY_PRINCIPLE, are sent with conversations that have none of their own.
        Raises `ValueError`.
        """
        url, model = url or os.environ.get(URL, ""), model or os.environ.get(MODEL)
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the endpoint's address is {url!r}: give one such as http://127.0.0.1:8000, or set {URL}")
        if not (timeout > 0 and retries >= 0 and max_in_flight > 0 and batch > 0 and wait_ms >= 0):
            raise ValueError("timeout, max_in_flight and batch must be above 0, retries and wait_ms at least 0")
        self._settings = Settings(url, timeout, retries, max_in_flight, batch, wait_ms)
        if isinstance(principles, str):  # each of its letters would be one
            raise ValueError(f"principles is {principles!r}: give a list of texts")
        principles = list(filter(None, [os.environ.get(PRINCIPLE)] if principles is None else principles))
        self._defaults = {"principles": principles} if principles else {}
        fields = {"model": model} if model else {}
        self._route = route or Route("/v1/rewards", ("conversations",), read_rewards, fields)
        self._key = key
        self._batches: Batches | None = None
        self._is_closed = False

    def rewards(self, conversations: Sequence[Mapping[str, Any]], *, timeout: float | None = None) -> list[Reward]:
        """One reward for each response, in order. Never raises for what the endpoint or the network does.

        A conversation is what `/v1/rewards` takes: `messages`, whose last turn is judged, or `responses` to them, each of
        which has a reward; `tools`, `principles`, `reference`, `fields`. Raises `TypeError`, `ValueError` or `KeyError`
        for one that isn't JSON or has no `messages`.
        """
        answer = self.submit(self._read(conversations), timeout)
        try:
            return answer.result()
        except BaseException:  # Ctrl-C: the conversations needn't be judged any more
            answer.cancel()
            raise

    async def rewards_async(
        self, conversations: Sequence[Mapping[str, Any]], *, timeout: float | None = None
    ) -> list[Reward]:
        """`rewards`, for a caller with an event loop. A caller that is cancelled takes its conversations back."""
        return await asyncio.wrap_future(self.submit(self._read(conversations), timeout))

    def submit(self, items: Sequence[Item], timeout: float | None = None) -> "Future[list[Reward]]":
        """Rewards to come, of items of the client's route."""
        timeout_s = self._settings.timeout if timeout is None else timeout  # 0, where no time is left
        return asyncio.run_coroutine_threadsafe(self._ask(items, timeout_s), _background_loop())

    def close(self) -> None:
        """End what is under way: its callers, and all later ones, get `closed` as their reason."""
        self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._close(), _background_loop()).result()

    def _read(self, conversations: Sequence[Mapping[str, Any]]) -> list[Item]:
        return [read_conversation({**self._defaults, **conversation}) for conversation in conversations]

    async def _ask(self, items: Sequence[Item], timeout_s: float) -> list[Reward]:
        if self._is_closed:
            return CLOSED.rewards(sum(item.count for item in items))
        if self._batches is None or self._batches.loop is not asyncio.get_running_loop():
            _abandoned.append(self._batches)  # after a fork: the connections are the parent's
            key = (self._key or os.environ.get(KEY, "")).strip()  # a key out of a file ends with a line's end
            if not (key.isascii() and key.isprintable()):  # the error of a header would repeat it
                raise ValueError(f"the key, or {KEY}, holds characters that no header takes")
            self._batches = Batches(self._settings, self._route, {"Authorization": f"Bearer {key}"} if key else {})
        return await self._batches.ask(items, timeout_s)

    async def _close(self) -> None:
        if self._batches is not None and self._batches.loop is asyncio.get_running_loop():
            await self._batches.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


@cache
def default_client() -> Client:
    """The adapters', with ASSAY_URL, ASSAY_MODEL and ASSAY_API_KEY."""
    return Client()


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
# What a forked process inherited. It stays referenced: to collect it would close what is the parent's.
_abandoned: list[object] = []


def _background_loop() -> asyncio.AbstractEventLoop:
    """This process's loop, in a thread that the first call starts."""
    global _loop  # noqa: PLW0603  one a process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="assay-client", daemon=True).start()
        return _loop


def _forget_loop() -> None:
    # A fork copies no threads: the loop stands still, and the lock may be held by a thread that isn't there.
    global _lock, _loop
    _abandoned.append(_loop)
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_loop)
