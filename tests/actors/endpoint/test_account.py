"""What requests come to, whatever happens to them while the file is written."""

import asyncio
import threading
from pathlib import Path

from actors.endpoint.account import Account
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
