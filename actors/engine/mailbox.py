"""Hands the newest of a series of states from one thread to a coroutine in another."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Holds one item; a newer one replaces it, so a slow reader skips states. Neither side waits for the other's loop.

    Made and read on the reader's loop; `put` is called from the writer's thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._items: list[T] = []

    def put(self, item: T) -> None:
        """Replace the item that the reader hasn't taken yet."""
        self._items = [item]
        self._wake()

    async def read_until_done(self, writer: Future[None]) -> AsyncGenerator[T, None]:
        """Items until the writer is done, its last one included; then its error is raised. Closing cancels the writer."""
        writer.add_done_callback(lambda _: self._wake())
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                has_ended = writer.done()  # asked before the items are taken: what was put before the end is seen
                items, self._items = self._items, []
                for item in items:
                    yield item
                if has_ended:
                    writer.result()
                    return
        finally:
            writer.cancel()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the reader's loop is closed, so the item isn't needed
            self._loop.call_soon_threadsafe(self._news.set)
