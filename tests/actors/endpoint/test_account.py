"""What requests come to, whatever happens to them while the file is written."""

import asyncio
import threading
from pathlib import Path

import pytest

from actors.endpoint.account import Account, read_spent
from actors.settings.endpoint import ModelEndpointSettings
from pipelines.data.storage.local_files import LocalFolder

BOUND = ModelEndpointSettings(endpoint="http://127.0.0.1:9/v1", max_cost=100.0, input_price=1e6, output_price=1e6)
"""A token costs 1."""


class SlowNotes(LocalFolder):
    """Notes in a folder, whose writes wait until `is_let`."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.is_let = threading.Event()
        self.is_let.set()
        self.begun = threading.Semaphore(0)

    def replace(self, name: str, content: bytes) -> None:
        self.begun.release()
        self.is_let.wait(60)
        super().replace(name, content)


def test_a_request_that_was_given_up_before_it_was_sent_leaves_its_room(tmp_path: Path) -> None:
    notes = SlowNotes(tmp_path)

    async def give_up() -> None:
        account = Account(BOUND, notes)
        notes.is_let.clear()
        first = asyncio.ensure_future(account.reserve(80.0))
        await asyncio.to_thread(notes.begun.acquire)
        first.cancel()
        await asyncio.wait([first])
        notes.is_let.set()
        await asyncio.wait_for(account.reserve(90.0), 20)

    asyncio.run(give_up())


def test_what_is_sent_while_the_file_is_written_is_in_it(tmp_path: Path) -> None:
    notes = SlowNotes(tmp_path)

    async def send_meanwhile() -> float:
        account = Account(BOUND, notes)
        await account.reserve(50.0)
        notes.begun.acquire()
        notes.is_let.clear()
        settled = asyncio.ensure_future(account.settle(50.0, {"usage": {"prompt_tokens": 1, "completion_tokens": 0}}))
        await asyncio.to_thread(notes.begun.acquire)
        reserved = asyncio.ensure_future(account.reserve(40.0))
        await asyncio.wait([reserved], timeout=0.2)
        notes.is_let.set()
        await asyncio.gather(settled, reserved)
        spent = read_spent(notes)
        return spent.cost + spent.ahead

    assert asyncio.run(send_meanwhile()) >= 1.0 + 40.0


def test_reasoning_that_only_the_total_counts_is_paid(tmp_path: Path) -> None:
    notes = SlowNotes(tmp_path)

    async def book() -> None:
        account = Account(BOUND, notes)
        for usage in ({"completion_tokens": 3, "total_tokens": 30}, {"completion_tokens": 3}, {"total_tokens": 7}):
            await account.reserve(50.0)
            await account.settle(50.0, {"usage": {"prompt_tokens": 7, **usage}})

    asyncio.run(book())
    spent = read_spent(notes)
    assert (spent.prompt_tokens, spent.written_tokens, spent.cost) == (21, 23 + 3, 21 + 26)


def test_without_a_bound_the_file_is_seconds_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests overlap, so that there is never a moment without one."""
    notes = SlowNotes(tmp_path)
    free = ModelEndpointSettings(endpoint="http://127.0.0.1:9/v1")

    async def overlap() -> None:
        account = Account(free, notes)
        await account.reserve(0.0)
        for _ in range(3):
            await account.reserve(0.0)
            await account.settle(0.0, {"usage": {"prompt_tokens": 7, "completion_tokens": 3}})

    for seconds, requests in ((3600.0, 1), (0.0, 4)):
        monkeypatch.setattr("actors.endpoint.account._WRITE_S", seconds)
        asyncio.run(overlap())
        assert read_spent(notes).requests == requests


def test_the_end_waits_for_what_is_written_of_requests_that_were_given_up(tmp_path: Path) -> None:
    notes = SlowNotes(tmp_path)

    async def end() -> None:
        account = Account(BOUND, notes)
        await account.reserve(50.0)
        notes.begun.acquire()
        notes.is_let.clear()
        settled = asyncio.ensure_future(account.settle(50.0, {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}))
        await asyncio.to_thread(notes.begun.acquire)
        settled.cancel()
        asyncio.get_running_loop().call_later(0.2, notes.is_let.set)
        await account.close()
        assert read_spent(notes).cost == 10.0

    asyncio.run(end())
