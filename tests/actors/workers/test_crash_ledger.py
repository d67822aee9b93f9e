"""Engines that die: whose fault it was, how often they may, and that a suspect runs alone."""

import itertools
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from actors.engine.fake_engine import FakeEngine, FakeFault, Faults
from actors.errors import CrashLoop
from actors.records import Prompt, Reason, RenderedRequest, RenderedResponse, Score, Status
from actors.reward_model import families
from actors.scorers.head_scorer import HeadScorer
from actors.workers.batch_actor import BatchActor, _fail_killer
from actors.workers.crash_ledger import SUSPECT, Ledger, name_item
from actors.workers.engine_process import EngineProcess, _Gate

PATIENCE = 30.0  # seconds, for a thread that should come at once


# The ledger.


def test_a_warning_is_kept_once_and_so_many_at_most() -> None:
    ledger = Ledger(max_deaths=3)
    for text in ("a", "b", "a", *map(str, range(200))):
        ledger.warn(text)
    assert ledger.warnings()[:3] == ["a", "b", "0"]
    assert len(ledger.warnings()) == 100


_process_ids = itertools.count()


def starts(ledger: Ledger, holder: str, node: str = "node-1", alive: tuple[str, ...] = ("node-1", "node-2")) -> bool:
    """A new process of an engine starts on a node, of those that there are."""
    return ledger.note_start(holder, f"process-{next(_process_ids)}", node, alive)


def test_work_that_was_left_has_cost_nothing() -> None:
    ledger = Ledger(max_deaths=3)
    for _ in range(5):
        assert ledger.deaths("part-1") == 0
        ledger.enter("part-1", "actor-1")
        ledger.leave("part-1")


def test_work_that_was_open_twice_is_a_suspect() -> None:
    ledger = Ledger(max_deaths=9)
    for deaths in range(4):
        starts(ledger, "actor-1")
        assert ledger.deaths("part-1") == deaths
        assert (ledger.deaths("part-1") >= SUSPECT) == (deaths >= 2)
        ledger.enter("part-1", "actor-1")
    assert ledger.deaths("part-2") == 0


def test_suspicion_outlives_success() -> None:
    ledger = Ledger(max_deaths=9)
    for _ in range(3):
        starts(ledger, "actor-1")
        ledger.enter("part-1", "actor-1")
    ledger.leave("part-1")
    assert ledger.deaths("part-1") == 2


def test_engines_that_die_without_work_done_end_the_run() -> None:
    ledger = Ledger(max_deaths=3)
    for _ in range(3):
        starts(ledger, "actor-1")
        ledger.note_error("out of memory on device 3")
    with pytest.raises(CrashLoop, match=r"engines died 3 times with no work done .* out of memory on device 3"):
        starts(ledger, "actor-1")


def test_deaths_of_all_actors_count_together() -> None:
    ledger = Ledger(max_deaths=2)
    for actor in ("actor-1", "actor-2", "actor-1"):
        starts(ledger, actor)
    with pytest.raises(CrashLoop, match="may have killed them"):
        starts(ledger, "actor-2")


def test_the_first_start_of_an_actor_is_no_death() -> None:
    ledger = Ledger(max_deaths=1)
    for actor in range(100):
        starts(ledger, f"actor-{actor}")


def test_work_done_in_between_forgives() -> None:
    ledger = Ledger(max_deaths=2)
    for number in range(20):
        starts(ledger, "actor-1")
        ledger.enter(f"part-{number}", "actor-1")
        ledger.leave(f"part-{number}")


def test_what_a_suspect_came_to_is_kept_until_its_work_is_done() -> None:
    ledger = Ledger(max_deaths=2)
    ledger.add_result("part-1", 0, "first")
    ledger.results("part-1").append("not this")
    ledger.add_result("part-1", 1, "second")
    assert (ledger.results("part-1"), ledger.results("part-2")) == (["first", "second"], [])
    ledger.leave("part-1")
    assert ledger.results("part-1") == []


def test_a_call_that_is_repeated_because_its_answer_was_lost_changes_nothing() -> None:
    ledger = Ledger(max_deaths=2)
    for process, is_restart in (("process-1", False), ("process-2", True)):
        for _ in range(3):
            assert ledger.note_start("actor-1", process, "node-1", ["node-1"]) is is_restart
    assert ledger.restarts()[0] == 1
    for _ in range(3):
        ledger.enter("part-1", "actor-1")
    assert ledger.deaths("part-1") == 1, "it would be the first if the process died now"
    for number, result in ((0, "first"), (0, "first"), (1, "second"), (1, "second")):
        ledger.add_result("part-1", number, result)
    assert ledger.results("part-1") == ["first", "second"]
    for _ in range(3):
        ledger.leave("part-1")
    assert ledger.deaths("part-1") == 0


def test_the_start_that_ends_a_run_does_so_again_when_it_is_repeated() -> None:
    ledger = Ledger(max_deaths=1)
    starts(ledger, "actor-1")
    ledger.note_error("out of memory")
    for _ in range(2):
        with pytest.raises(CrashLoop, match=r"^engines died 1 times .* The last error: out of memory$"):
            ledger.note_start("actor-1", "process-2", "node-1", ["node-1"])


def test_work_begun_forgives_nothing() -> None:
    ledger = Ledger(max_deaths=2)
    for number in range(2):
        starts(ledger, "actor-1")
        ledger.enter(f"part-{number}", "actor-1")
    with pytest.raises(CrashLoop):
        starts(ledger, "actor-1")


def test_an_engine_that_went_with_its_node_died_of_nothing() -> None:
    ledger = Ledger(max_deaths=2)
    for node in range(20):
        starts(ledger, "actor-1", f"node-{node}", (f"node-{node}",))
        assert ledger.deaths("part-1") == 0
        ledger.enter("part-1", "actor-1")
    assert ledger.restarts() == (19, "its node went away")


def test_only_the_work_of_the_lost_engine_is_forgiven() -> None:
    ledger = Ledger(max_deaths=2)
    starts(ledger, "actor-1", "node-1")
    starts(ledger, "actor-2", "node-2")
    ledger.enter("part-1", "actor-1")
    ledger.enter("part-2", "actor-2")
    starts(ledger, "actor-1", "node-2", ("node-2",))
    assert (ledger.deaths("part-1"), ledger.deaths("part-2")) == (0, 1)


def test_engines_without_a_node_are_told_of_and_whether_others_work() -> None:
    ledger = Ledger(max_deaths=2)
    starts(ledger, "actor-1", "node-1")
    starts(ledger, "actor-2", "node-2")
    assert ledger.engine_health(["node-1", "node-2"]) == ((), ("actor-1", "actor-2")), "they are loading"
    ledger.note_ready("actor-1")
    assert ledger.engine_health(["node-1"]) == (("actor-2",), ())
    ledger.enter("part-1", "actor-1")
    ledger.enter("part-2", "actor-2")
    assert ledger.engine_health(["node-1"]) == (("actor-2",), ("actor-1",))
    ledger.leave("part-1")
    assert ledger.engine_health(["node-1"]) == (("actor-2",), ()), "it can't do its part"
    starts(ledger, "actor-2", "node-1", ("node-1",))
    assert ledger.engine_health(["node-1"]) == ((), ("actor-2",))


def test_an_engine_whose_work_had_a_killer_isnt_busy_when_the_work_is_done() -> None:
    """Else it seems to be, and a lost engine's work waits for a place for hours, though others could do it."""
    ledger = Ledger(max_deaths=9)
    starts(ledger, "actor-1")
    ledger.note_ready("actor-1")
    for _ in range(SUSPECT):
        ledger.enter("part-1", "actor-1")
        starts(ledger, "actor-1")
    for _ in range(SUSPECT):
        ledger.enter(name_item("part-1", 0), "actor-1")
        starts(ledger, "actor-1")
    ledger.note_ready("actor-1")
    assert ledger.deaths(name_item("part-1", 0)) == SUSPECT
    ledger.add_result("part-1", 0, "killer")
    ledger.leave("part-1")
    assert ledger.engine_health(["node-1"]) == ((), ())


def test_the_steps_of_a_start_are_told_until_the_engine_works() -> None:
    ledger = Ledger(max_deaths=3)
    starts(ledger, "first")
    assert ledger.list_start_steps() == [], "it has said nothing yet"
    starts(ledger, "second")
    ledger.note_start_step("first", "importing vLLM")
    ledger.note_start_step("second", "importing vLLM")
    ledger.note_start_step("first", "loading tiny-scalar")
    assert [step for step, _ in ledger.list_start_steps()] == ["loading tiny-scalar", "importing vLLM"]
    ledger.note_ready("first")
    assert ledger.list_start_steps() == [("importing vLLM", "node-1")]


def test_restarts_are_counted_with_the_last_cause() -> None:
    ledger = Ledger(max_deaths=9)
    starts(ledger, "actor-1")
    assert ledger.restarts()[0] == 0
    starts(ledger, "actor-1")
    assert ledger.restarts() == (
        1,
        "their processes ended without an error message; the system may have killed them (out of memory?)",
    )
    ledger.note_error("out of memory")
    starts(ledger, "actor-1")
    assert ledger.restarts() == (2, "out of memory")


def test_a_ledger_tells_the_last_error_and_travels() -> None:
    ledger = Ledger(max_deaths=2)
    assert ledger.last_error() == ""
    ledger.note_error("first")
    ledger.note_error("second")
    assert pickle.loads(pickle.dumps(ledger)).last_error() == "second"


# The gate.


class Watched(threading.Condition):
    """Tells when a thread waits on it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self._waits.release()
        return super().wait(timeout)

    def somebody_waits(self) -> bool:
        return self._waits.acquire(timeout=PATIENCE)


class Visitor:
    """A thread that goes through a gate, and stays inside until it is let go."""

    def __init__(self, way: AbstractContextManager[None]) -> None:
        self.inside = threading.Event()
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._visit, args=[way], daemon=True)
        self._thread.start()

    def _visit(self, way: AbstractContextManager[None]) -> None:
        with way:
            self.inside.set()
            self._let_go.wait(PATIENCE)

    def arrives(self) -> bool:
        return self.inside.wait(PATIENCE)

    def leaves(self) -> None:
        self._let_go.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def gate() -> _Gate:
    made = _Gate()
    made._changed = Watched()
    return made


def somebody_waits(gate: _Gate) -> bool:
    watched: Any = gate._changed
    return bool(watched.somebody_waits())


def test_many_are_beside_each_other(gate: _Gate) -> None:
    visitors = [Visitor(gate.share()) for _ in range(4)]
    assert all(visitor.arrives() for visitor in visitors)
    for visitor in visitors:
        visitor.leaves()


def test_one_alone_waits_for_all_who_are_inside_and_lets_nobody_in(gate: _Gate) -> None:
    inside = [Visitor(gate.share()) for _ in range(2)]
    assert all(visitor.arrives() for visitor in inside)
    suspect = Visitor(gate.exclude_others())
    assert somebody_waits(gate)
    later = Visitor(gate.share())
    assert somebody_waits(gate)

    inside[0].leaves()
    assert somebody_waits(gate)  # the suspect looked again, and one is still inside
    assert not suspect.inside.is_set()
    inside[1].leaves()
    assert suspect.arrives()
    assert not later.inside.is_set()

    suspect.leaves()
    assert later.arrives()
    later.leaves()


def test_two_suspects_are_not_alone_together(gate: _Gate) -> None:
    first = Visitor(gate.exclude_others())
    assert first.arrives()
    second = Visitor(gate.exclude_others())
    assert somebody_waits(gate)
    assert not second.inside.is_set()
    first.leaves()
    assert second.arrives()
    second.leaves()


@pytest.mark.parametrize("way", [_Gate.share, _Gate.exclude_others])
def test_an_error_inside_opens_the_gate_again(gate: _Gate, way: Callable[[_Gate], AbstractContextManager[None]]) -> None:
    with pytest.raises(ZeroDivisionError), way(gate):
        raise ZeroDivisionError
    with gate.exclude_others():
        pass


# The search for a request that kills, in an actor whose process dies as an exception.

DEADLY = 13


class ProcessEnded(Exception):
    """In place of a process's end."""


class Process(EngineProcess):
    """An engine's process without Ray."""

    def __init__(self, ledger: Ledger, engine: FakeEngine) -> None:
        starts(ledger, "actor-1")
        self._ledger = ledger
        self._gate = _Gate()
        self._holder = "actor-1"
        self.engine = engine

    def _call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._ledger, method)(*arguments)


class Actor(BatchActor):
    """A batch actor without Ray."""

    def __init__(self, ledger: Ledger, die_after: int | None) -> None:
        family = families()["scalar"]
        engine = FakeEngine(1, 100, faults=Faults({DEADLY: FakeFault.DIE}, die_after))
        self._process = Process(ledger, engine)
        self._score_block = HeadScorer(family, family.card_weights(), engine).score_block

    def stop(self) -> None:
        self._process.engine.close()


@pytest.fixture(autouse=True)
def _no_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise ProcessEnded(code)

    monkeypatch.setattr(os, "_exit", end)


def score(
    ledger: Ledger, work: str, requests: list[RenderedRequest], die_after: int | None = None
) -> tuple[list[tuple[Score, ...]], int]:
    """Score a block, starting actors as Ray does; and how many of them died."""
    for deaths in range(100):
        actor = Actor(ledger, die_after)
        try:
            return actor.score(work, requests), deaths
        except ProcessEnded:
            continue
        finally:
            actor.stop()
    raise AssertionError("they died for ever")


def block(*tokens: int) -> list[RenderedRequest]:
    """Requests of one prompt of one token each."""
    return [RenderedRequest("hash", (RenderedResponse("final"),), (Prompt([token], (0,)),)) for token in tokens]


def test_harmless_work_is_scored_at_once() -> None:
    scores, deaths = score(Ledger(2), "part-1", block(1, 2, 3))
    assert [one.status for (one,) in scores] == [Status.SCORED] * 3
    assert deaths == 0


def test_the_request_that_kills_is_found_and_the_others_are_scored() -> None:
    requests = block(1, 2, DEADLY, 3, DEADLY, 4)
    ledger = Ledger(10)
    scores, deaths = score(ledger, "part-1", requests)
    assert [one.reason for (one,) in scores] == [None, None, Reason.ENGINE_KILLER, None, Reason.ENGINE_KILLER, None]
    assert deaths == SUSPECT + 2 * SUSPECT
    harmless, _ = score(Ledger(2), "part-1", block(1, 2, 3, 3, 4, 4))
    assert [one for one in scores if one[0].reason is None] == [harmless[at] for at in (0, 1, 2, 4)]
    assert ledger.deaths("part-2") == 0


def test_what_was_found_about_a_suspect_outlives_engines_so_that_none_is_blamed_for_their_frailty() -> None:
    """Were the whole block asked again, requests late in it would be alone when an engine dies, twice each."""
    requests = block(*range(20, 50))
    calm, _ = score(Ledger(2), "part-1", requests)
    scores, deaths = score(Ledger(3), "part-1", requests, die_after=7)
    assert scores == calm
    assert deaths == SUSPECT + len(requests) // 7


def test_killers_apart_from_each_other_dont_end_the_run() -> None:
    requests = block(*[token for number in range(8) for token in (DEADLY, 20 + number)])
    scores, deaths = score(Ledger(5), "part-1", requests)
    assert [one.reason for (one,) in scores] == [Reason.ENGINE_KILLER, None] * 8
    assert deaths == SUSPECT + 8 * SUSPECT


def test_the_responses_of_a_killer_that_were_rejected_before_stay_so() -> None:
    responses = (RenderedResponse("A", Reason.CONTROL_TOKEN), RenderedResponse("B"))
    scores, _ = score(Ledger(10), "part-1", [RenderedRequest("hash", responses, (Prompt([DEADLY], (1,)),))])
    assert [one.reason for one in scores[0]] == [Reason.CONTROL_TOKEN, Reason.ENGINE_KILLER]
    assert [one.status for one in scores[0]] == [Status.REJECTED, Status.FAILED]


def test_what_a_response_was_before_it_killed_an_engine_is_kept() -> None:
    refused = RenderedResponse("reasons", Reason.REASONING, reasoned=True)
    killer = RenderedResponse("kills", truncated=True, reasoned=True)
    found = _fail_killer(RenderedRequest("hash", (refused, killer), ()))
    assert [(one.reason, one.truncated, one.reasoned) for one in found] == [
        (Reason.REASONING, False, True),
        (Reason.ENGINE_KILLER, True, True),
    ]


def test_an_engine_that_dies_of_everything_ends_the_run() -> None:
    with pytest.raises(CrashLoop, match="a prompt killed it"):
        score(Ledger(3), "part-1", block(DEADLY, DEADLY))
