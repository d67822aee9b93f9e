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
    if how == "dawdle":
        time.sleep(1.1)  # longer than loky waits between two looks at a process's growth
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


@pytest.mark.filterwarnings("ignore:A worker was restarted")
def test_a_process_that_loky_has_replaced_is_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_engine, "_MOST_BYTES", 2**29)
    monkeypatch.setenv("LOKY_MAX_MEMORY_LEAK_SIZE", "-1e12")  # any growth, in the processes
    engine = ProcessEngine(nothing, 1, request_timeout_s=10.0)
    try:
        results = [engine.submit(engine.run(behave, [how])).result() for how in ("dawdle", "a", "fill")]
        assert results == [["DAWDLE"], ["A"], [Reason.ENGINE_KILLER]]
    finally:
        engine.close()


def test_many_items_keep_their_order_and_no_process_is_left(engine: ProcessEngine) -> None:
    items = [str(number) for number in range(1000)]
    assert engine.load == (0, 0)
    assert engine.submit(engine.run(behave, items)).result() == items
    assert engine.load == (1000, 0)
    ids = [number for process in engine._processes if process._executor for number in process._executor._processes]
    engine.close()
    assert ids
    assert not any(map(psutil.pid_exists, ids))
    with pytest.raises(EngineDead):
        engine.submit(engine.run(behave, items)).result()
