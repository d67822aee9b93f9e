"""Engines that die: whose fault it was, how often they may, and that a suspect runs alone."""

import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from actors.engine.protocol import Engine, Pooled
from actors.errors import CrashLoop
from actors.launch.start_engine import Report
from actors.records import Prompt, Reading, Reason, RenderedRequest, RenderedResponse, Score, Status
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.batch_noise import BatchNoise
from actors.scorers.choose_scorer import scorer_of
from actors.scorers.head_scorer import HeadScorer, ScoreBlock, Scores
from actors.scorers.policy import CandidatePrompt, resolve_policy
from actors.settings.replica import EngineSettings, ModelSettings, PolicySettings, RenderSettings
from actors.workers import batch_actor
from actors.workers.batch_actor import BatchActor, WithScoreCache
from actors.workers.crash_ledger import SUSPECT, Ledger, name_item
from actors.workers.engine_process import EngineProcess, _Gate
from actors.workers.policy_actor import PolicyActor

PATIENCE = 30.0  # seconds, for a thread that should come at once
MOMENT = 0.05  # seconds, for one that should not


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


def open_often(ledger: Ledger, work: str, times: int) -> None:
    """Processes of an engine that enter the work and die of it, one after another."""
    for _ in range(times):
        starts(ledger, "actor-1")
        ledger.enter(work, "actor-1")


def test_work_that_was_open_twice_is_a_suspect_also_when_it_is_done() -> None:
    ledger = Ledger(max_deaths=9)
    for deaths in range(4):
        assert ledger.deaths("part-1") == deaths
        open_often(ledger, "part-1", 1)
    ledger.leave("part-1")
    assert ledger.deaths("part-1") == 3
    for _ in range(5):
        assert ledger.deaths("part-2") == 0
        ledger.enter("part-2", "actor-1")
        ledger.leave("part-2")


def test_engines_that_die_without_work_done_end_the_run() -> None:
    ledger = Ledger(max_deaths=3)
    for _ in range(3):
        starts(ledger, "actor-1")
        ledger.note_error("out of memory on device 3")
    with pytest.raises(CrashLoop, match=r"an engine died 3 times with no work done .* out of memory on device 3"):
        starts(ledger, "actor-1")


def test_deaths_of_each_actor_count_by_themselves() -> None:
    """All of them may have met killers at a time; a broken cluster takes no more rounds of deaths than a broken machine."""
    ledger = Ledger(max_deaths=2)
    for actor in [*map("actor-{}".format, range(100)), "actor-1", "actor-2", "actor-3"]:
        starts(ledger, actor)
    with pytest.raises(CrashLoop, match="may have killed them"):
        starts(ledger, "actor-2")


def test_work_done_in_between_by_any_actor_forgives_all() -> None:
    ledger = Ledger(max_deaths=2)
    for number in range(20):
        starts(ledger, "actor-1")
        starts(ledger, "actor-2")
        ledger.leave(f"part-{number}", "a request")


@pytest.mark.parametrize("is_left", [True, False])
def test_work_begun_or_answered_by_no_engine_forgives_nothing(is_left: bool) -> None:
    """All of it killed, or a score store had it."""
    ledger = Ledger(max_deaths=2)
    for number in range(2):
        open_often(ledger, f"part-{number}", 1)
        if is_left:
            ledger.leave(f"part-{number}")
    with pytest.raises(CrashLoop):
        starts(ledger, "actor-1")


def test_the_first_item_that_was_answered_is_the_witness() -> None:
    ledger = Ledger(max_deaths=2)
    assert ledger.witness() is None
    for answered in (None, "first", "second", None):
        ledger.leave("part-1", answered)
    assert ledger.witness() == "first"


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
        with pytest.raises(CrashLoop, match=r"^an engine died 1 times .* The last error: out of memory$"):
            ledger.note_start("actor-1", "process-2", "node-1", ["node-1"])


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
    open_often(ledger, "part-1", SUSPECT)
    open_often(ledger, name_item("part-1", 0), SUSPECT)
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
    assert ledger.last_error() == ""
    starts(ledger, "actor-1")
    assert ledger.restarts()[0] == 0
    starts(ledger, "actor-1")
    count, cause = ledger.restarts()
    assert count == 1
    assert cause.startswith("their processes ended without an error message")
    for error in ("first", "out of memory"):
        ledger.note_error(error)
    starts(ledger, "actor-1")
    assert ledger.restarts() == (2, ledger.last_error()) == (2, "out of memory")


# The gate.


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


def test_a_suspect_waits_for_all_who_are_inside_and_lets_nobody_in() -> None:
    gate = _Gate()
    inside = [Visitor(gate.share()) for _ in range(2)]
    assert all(visitor.arrives() for visitor in inside)
    suspect = Visitor(gate.exclude_others())
    inside[0].leaves()
    assert not suspect.inside.wait(MOMENT), "one is still inside"
    later = [Visitor(gate.share()), Visitor(gate.exclude_others())]
    inside[1].leaves()
    assert suspect.arrives()
    assert not any(visitor.inside.wait(MOMENT) for visitor in later)
    suspect.leaves()
    for visitor in later:
        visitor._let_go.set()
    assert all(visitor.arrives() for visitor in later)


@pytest.mark.parametrize("way", [_Gate.share, _Gate.exclude_others])
def test_an_error_inside_opens_the_gate_again(way: Callable[[_Gate], AbstractContextManager[None]]) -> None:
    gate = _Gate()
    with pytest.raises(ZeroDivisionError), way(gate):
        raise ZeroDivisionError
    with gate.exclude_others():
        pass


# The search for a request that kills, in an actor whose process dies as an exception.

DEADLY = 13


class ProcessEnded(Exception):
    """In place of a process's end."""


class WithoutRay(EngineProcess[Any, Any]):
    """An engine's process without Ray."""

    def __init__(self, ledger: Ledger, start: Callable[[Report], Engine]) -> None:
        starts(ledger, self._holder)
        self._ledger = ledger
        self._gate = _Gate()
        self.engine = start(print)
        ledger.note_ready(self._holder)

    def _call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._ledger, method)(*arguments)


class Actor(BatchActor, WithoutRay):
    """A batch actor without Ray."""

    def __init__(
        self, ledger: Ledger, die_after: int | None, holder: str = "actor-1", remember: WithScoreCache | None = None
    ) -> None:
        self._holder = holder
        super().__init__(scalar_model(), fake_engine(die_after), ledger, remember)


@functools.cache
def scalar_model() -> RewardModel:
    return resolve_model(ModelSettings(model="tiny-scalar"), RenderSettings())


def fake_engine(die_after: int | None = None) -> EngineSettings:
    """A fake engine that dies of the token `DEADLY`, and after so many answers."""
    return EngineSettings(engine="fake", engine_args={"at": {str(DEADLY): "die"}, "die_after": die_after})


MAX_DEATHS = 6  # the default of --max-engine-deaths


@pytest.fixture(autouse=True)
def _no_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise ProcessEnded(code)

    monkeypatch.setattr(os, "_exit", end)


def until_alive(start: Callable[[], Any], work: Callable[[Any], Any]) -> tuple[Any, int]:
    """What an actor's work returns, starting actors as Ray does, and how many of them died."""
    for deaths in range(100):
        actor = start()
        try:
            return work(actor), deaths
        except ProcessEnded:
            continue
        finally:
            actor.engine.close()
    raise AssertionError("they died for ever")


def score(
    ledger: Ledger,
    work: str,
    requests: list[RenderedRequest],
    die_after: int | None = None,
    remember: WithScoreCache | None = None,
) -> tuple[list[tuple[Score, ...]], int]:
    """Score a block; and how many actors died of it."""
    return until_alive(lambda: Actor(ledger, die_after, remember=remember), lambda actor: actor.score(work, requests))


def block(*tokens: int) -> list[RenderedRequest]:
    """Requests of one prompt of one token each."""
    return [RenderedRequest("hash", (RenderedResponse("final"),), (Prompt([token], (0,)),)) for token in tokens]


def reasons(scores: list[tuple[Score, ...]]) -> list[Reason | None]:
    return [score.reason for (score,) in scores]


def test_harmless_work_is_scored_at_once() -> None:
    scores, deaths = score(Ledger(2), "part-1", block(1, 2, 3))
    assert (reasons(scores), deaths) == ([None] * 3, 0)


def test_the_request_that_kills_is_found_and_the_others_are_scored() -> None:
    ledger = Ledger(10)
    scores, deaths = score(ledger, "part-1", block(1, 2, DEADLY, 3, DEADLY, 4))
    assert reasons(scores) == [None, None, Reason.ENGINE_KILLER, None, Reason.ENGINE_KILLER, None]
    assert deaths == SUSPECT + 2 * SUSPECT
    harmless, _ = score(Ledger(2), "part-1", block(1, 2, 3, 4))
    assert [score for score in scores if score[0].reason is None] == harmless
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
    assert [item.reason for (item,) in scores] == [Reason.ENGINE_KILLER, None] * 8
    assert deaths == SUSPECT + 8 * SUSPECT


def test_what_a_response_was_before_it_killed_an_engine_is_kept() -> None:
    refused = RenderedResponse("reasons", Reason.REASONING, reasoned=True)
    killer = RenderedResponse("kills", truncated=True, reasoned=True)
    request = RenderedRequest("hash", (refused, killer), (Prompt([DEADLY], (1,)),))
    ((first, second),), _ = score(Ledger(10), "part-1", [request])
    assert (first.status, first.reason, first.truncated, first.reasoned) == (Status.REJECTED, Reason.REASONING, False, True)
    assert (second.status, second.reason, second.truncated, second.reasoned) == (
        Status.FAILED, Reason.ENGINE_KILLER, True, True
    )  # fmt: skip


def test_an_engine_that_dies_of_everything_ends_the_run() -> None:
    with pytest.raises(CrashLoop, match="a prompt killed it"):
        score(Ledger(3), "part-1", block(DEADLY, DEADLY))


# Killers that are neighbours.


def block_with_killers(*killers: int) -> list[RenderedRequest]:
    """A block of 8 requests, of which those of these numbers kill."""
    return block(*[DEADLY if number in killers else 20 + number for number in range(8)])


def test_killers_that_are_neighbours_are_all_found() -> None:
    """Two deaths of the block, and two of each killer."""
    for killers in ([3], [1, 3, 5, 7], [0, 1], [0, 7], [3, 4, 5], [5, 6, 7], range(1, 8), range(7)):
        scores, deaths = score(Ledger(MAX_DEATHS), "part-1", block_with_killers(*killers))
        assert reasons(scores) == [Reason.ENGINE_KILLER if number in killers else None for number in range(8)]
        assert deaths == SUSPECT + SUSPECT * len(killers)


def test_blocks_full_of_killers_are_found_after_one_that_was_scored() -> None:
    ledger = Ledger(MAX_DEATHS)
    score(ledger, "part-1", block(1, 2, 3))
    for part in ("part-2", "part-3"):
        assert reasons(score(ledger, part, block(*[DEADLY] * 8))[0]) == [Reason.ENGINE_KILLER] * 8
        assert ledger.engine_health(["node-1"]) == ((), ()), "nobody is busy with what is done"
    assert reasons(score(ledger, "part-4", block(1, 2, 3))[0]) == [None] * 3


def test_a_first_block_full_of_killers_is_found_only_with_a_higher_bound() -> None:
    """Nothing tells it from a machine on which every request kills."""
    killers = block(*[DEADLY] * 8)
    with pytest.raises(CrashLoop, match=r"an engine died 6 times .* --set max_engine_deaths"):
        score(Ledger(MAX_DEATHS), "part-1", killers)
    ledger = Ledger(SUSPECT + 8 * SUSPECT + 2)  # the next block is scored by another process, too
    assert reasons(score(ledger, "part-1", killers)[0]) == [Reason.ENGINE_KILLER] * 8
    assert score(ledger, "part-2", block(1, 2, 3))[1] == 0


@pytest.mark.parametrize("items", [1, 2, 8])
@pytest.mark.parametrize("scored_before", [True, False])
def test_a_machine_that_breaks_ends_the_run_however_small_the_blocks_are(items: int, scored_before: bool) -> None:
    ledger = Ledger(MAX_DEATHS)
    if scored_before:
        score(ledger, "part-0", block(1, 2, 3))
    scored = list[str]()

    def score_all() -> None:
        for part in map("part-{}".format, range(1, 100)):
            score(ledger, part, block(*range(20, 20 + items)), die_after=0)
            scored.append(part)

    with pytest.raises(CrashLoop, match=r"an engine died 6 times .* it had answered 0 requests"):
        score_all()
    # A block of one request, and nothing scored before: nothing could show that it isn't the request that kills.
    assert scored == (["part-1"] if items == 1 and not scored_before else [])


def test_a_frail_engine_is_blamed_itself_though_a_request_was_scored_before() -> None:
    ledger = Ledger(MAX_DEATHS)
    score(ledger, "part-1", block(1, 2, 3))
    scores, _ = score(ledger, "part-2", block(*range(20, 40)), die_after=1)
    assert reasons(scores) == [None] * 20


def turns_of_engines(ledger: Ledger, blocks: dict[str, list[RenderedRequest]], die_after: int | None = None) -> list[int]:
    """Each engine scores a block of its name, and all die in turns. How many killers each block has."""
    killers: dict[str, int] = {}
    for _ in range(100):
        waiting = [name for name in blocks if name not in killers]
        if not waiting:
            return list(killers.values())
        actors = {name: Actor(ledger, die_after, name) for name in waiting}
        for name, actor in actors.items():
            try:
                killers[name] = reasons(actor.score(f"part of {name}", blocks[name])).count(Reason.ENGINE_KILLER)
            except ProcessEnded:
                continue
            finally:
                actor.engine.close()
    raise AssertionError("they died for ever")


def test_engines_that_all_meet_killers_at_a_time_find_them() -> None:
    ledger = Ledger(MAX_DEATHS)
    score(ledger, "part-1", block(1, 2, 3))
    blocks = {f"engine-{number}": block(*[DEADLY] * 4) for number in range(8)}
    assert turns_of_engines(ledger, blocks) == [4] * 8


def test_engines_that_all_die_of_everything_end_the_run() -> None:
    ledger = Ledger(MAX_DEATHS)
    score(ledger, "part-1", block(1, 2, 3))
    with pytest.raises(CrashLoop):
        turns_of_engines(ledger, {f"engine-{number}": block(*range(20, 28)) for number in range(4)}, die_after=0)
    assert ledger.restarts()[0] <= 4 * MAX_DEATHS


class Memory:
    """A store around a scorer, of all that it has scored."""

    def __init__(self) -> None:
        self._scores: dict[str, Scores] = {}

    def __call__(self, score_block: ScoreBlock, report: Report) -> ScoreBlock:
        def compute(requests: Sequence[RenderedRequest]) -> list[Scores]:
            keys = [repr(request.prompts) for request in requests]
            new = {key: request for key, request in zip(keys, requests, strict=True) if key not in self._scores}
            fresh = dict(zip(new, score_block(list(new.values())), strict=True)) if new else {}
            self._scores |= {
                key: tuple(replace(score, from_store=True) for score in scores) for key, scores in fresh.items()
            }
            return [fresh.get(key, self._scores[key]) for key in keys]

        return compute


def score_once(ledger: Ledger, work: str, requests: list[RenderedRequest], remember: WithScoreCache) -> list[Scores]:
    """Score a block on a broken engine, in one process."""
    actor = Actor(ledger, 0, remember=remember)
    try:
        return actor.score(work, requests)
    finally:
        actor.engine.close()


def test_what_a_store_answers_shows_nothing_of_the_engine() -> None:
    ledger, memory = Ledger(8), Memory()
    stored = block(1, 2, 3)
    score(ledger, "part-0", stored, remember=memory)
    for _ in range(SUSPECT + SUSPECT):
        with pytest.raises(ProcessEnded):
            score_once(ledger, "part-1", block(20), memory)
    assert score_once(ledger, "part-2", stored, memory), "a store needs no engine"
    for _ in range(2):
        with pytest.raises(ProcessEnded):
            score_once(ledger, "part-1", block(20), memory)
    with pytest.raises(CrashLoop):  # six deaths, and the ends of two processes that did all their work
        score_once(ledger, "part-1", block(20), memory)


SCORED, REFUSED = Score.scored(Reading(1.0, {}), 3), Score.rejected(Reason.TOO_LONG)


def test_only_what_the_engine_did_is_an_answer() -> None:
    cases: list[tuple[Scores, bool]] = [
        ((SCORED,), True),
        ((REFUSED, SCORED), True),
        ((Score.failed(Reason.NO_VERDICT),), True),
        ((REFUSED,), False),
        ((Score.failed(Reason.ENGINE_TIMEOUT), Score.failed(Reason.ENGINE_REFUSED)), False),
        ((replace(SCORED, from_store=True),), False),
        ((), False),
    ]
    actor = Actor(Ledger(3), None)
    actor.engine.close()
    assert [actor.is_answer(scores) for scores, _ in cases] == [is_answer for _, is_answer in cases]


# A policy.


class Drawer(PolicyActor, WithoutRay):
    """A policy's actor without Ray."""

    def __init__(self, ledger: Ledger) -> None:
        self._holder = "actor-1"
        super().__init__(resolve_policy(PolicySettings(policy="tiny-policy")), fake_engine(), ledger)


def test_prompts_that_kill_a_policy_are_found_though_they_are_neighbours() -> None:
    ledger = Ledger(MAX_DEATHS)
    prompts = [CandidatePrompt([token], (0, 1)) for token in (DEADLY, DEADLY, DEADLY, 1, 2)]
    candidates, deaths = until_alive(lambda: Drawer(ledger), lambda actor: actor.draw("part-1", prompts))
    killers = [[candidate.reason is Reason.ENGINE_KILLER for candidate in of_prompt] for of_prompt in candidates]
    assert killers == [[True, True]] * 3 + [[False, False]] * 2
    assert deaths == SUSPECT + 3 * SUSPECT


# The noise of batching.


class Noisy(Actor):
    """An actor whose engine gives other rewards to prompts that are asked again, as beside others it may."""

    def __init__(self, ledger: Ledger, moved: float, die_after: int | None = None) -> None:
        super().__init__(ledger, die_after)
        engine = self.engine
        scorer = scorer_of(scalar_model(), engine)
        assert isinstance(scorer, HeadScorer)
        self._measured = scorer
        self.repeated: list[Sequence[int]] = []
        pool = engine.pool

        async def answer(ids: Sequence[int], *arguments: Any, context: str, uncached: bool = False) -> Pooled:
            pooled = await pool(ids, *arguments)
            if uncached:
                self.repeated.append(ids)
            return replace(pooled, rows=tuple((row[0] + moved * uncached * ids[0],) for row in pooled.rows))

        engine.pool = answer  # type: ignore[assignment,method-assign]


def test_one_in_so_many_requests_is_asked_again_and_the_largest_difference_noted() -> None:
    ledger, among = Ledger(3), batch_actor._AMONG
    actor = Noisy(ledger, 0.001)
    for first in range(0, 2 * among, 100):
        requests = block(*range(100 + first, 200 + first))
        actor.measure_noise(f"part-{first}", requests, actor.score(f"part-{first}", requests))
    actor.engine.close()
    assert actor.repeated == [[100 + index] for index in range(0, among, batch_actor._ONE_IN)]
    noise = ledger.engine_starts().noise
    assert noise is not None
    assert noise.responses == len(actor.repeated)
    assert noise.largest == pytest.approx(0.001 * max(ids[0] for ids in actor.repeated))


def test_what_the_engine_hasnt_answered_is_no_measure() -> None:
    ledger = Ledger(3)
    actor = Noisy(ledger, 0.001)
    requests = block(1, 2, 3)
    stored = (Score(Status.SCORED, reward=1.0, from_store=True),)
    failed = (Score.failed(Reason.ENGINE_TIMEOUT),)
    actor.measure_noise("part-1", requests, [stored, failed, (Score.rejected(Reason.TOO_LONG),)])
    actor.engine.close()
    assert (actor.repeated, ledger.engine_starts().noise) == ([], None)


def test_an_engine_that_dies_of_being_asked_again_leaves_the_block_innocent() -> None:
    ledger = Ledger(3)
    actor = Noisy(ledger, 0.001, die_after=2)
    requests = block(1, 2)
    scores = actor.score("part-1", requests)
    with pytest.raises(ProcessEnded):
        actor.measure_noise("part-1", requests, scores)
    actor.engine.close()
    assert ledger.deaths("part-1") == 0
    assert ledger.deaths("part-1/again") == 1


def test_the_noise_of_several_engines_is_the_largest() -> None:
    ledger = Ledger(3)
    assert ledger.engine_starts().noise is None
    for holder, largest in (("actor-1", 1e-6), ("actor-2", 3e-6), ("actor-2", 2e-6)):
        ledger.note_noise(holder, BatchNoise(largest, 10))
    assert ledger.engine_starts().noise == BatchNoise(2e-6, 20)
