"""The engine without a model: whatever an item does to its process, the others have their results, in their order."""

import os
import time
from collections.abc import Iterator

import psutil
import pytest

from actors.engine import process_engine
from actors.engine.process_engine import ProcessEngine
from actors.errors import EngineDead
from actors.records import Reason


def nothing() -> None:
    pass


def behave(how: str) -> str | bytes:
    if how == "hang":
        return b"x" * (9 ** (9**9) > 0)  # inside one instruction, which no signal interrupts
    if how == "exit":
        os._exit(1)
    if how == "fill":
        held = [b"x" * 2**20 for _ in range(2**10)]
        time.sleep(60)
        return held[0]
    if how == "raise":
        raise MemoryError
    return how.upper()


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    engine = ProcessEngine(nothing, 2, request_timeout_s=2.0)
    yield engine
    engine.close()


def test_each_item_has_its_result_or_the_reason_why_it_has_none(
    engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_engine, "_MOST_BYTES", 2**29)
    items = ["a", "hang", "b", "exit", "c", "fill", "d", "raise", "e"]
    results = engine.submit(engine.run(behave, items)).result()
    killer = Reason.ENGINE_KILLER
    assert results == ["A", Reason.ENGINE_TIMEOUT, "B", killer, "C", killer, "D", Reason.ENGINE_REFUSED, "E"]


def test_many_items_keep_their_order_and_no_process_is_left(engine: ProcessEngine) -> None:
    items = [str(number) for number in range(1000)]
    assert engine.submit(engine.run(behave, items)).result() == items
    ids = [process._id for process in engine._processes if process._executor is not None]
    engine.close()
    assert ids
    assert not any(map(psutil.pid_exists, ids))
    with pytest.raises(EngineDead):
        engine.submit(engine.run(behave, items)).result()
