"""What every engine does, run against the fake and against vLLM; and what can only be seen with the fake's faults."""

import asyncio
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest

from actors.engine.admission import Admission
from actors.engine.fake_engine import FakeEngine, FakeFault
from actors.engine.loop_thread import LoopThread
from actors.engine.protocol import Engine, Pooled, Sampling
from actors.errors import EngineDead, EngineError, EngineTimeout
from tests.support.clock import Clock
from tests.support.engines import LABELS, MAX_MODEL_LEN, SECONDS, ask, request_count, running, until

BAD_PROMPTS = {
    "too long": [1] * (MAX_MODEL_LEN + 1),
    "empty": [],
    "outside the vocabulary": [1, 2, 1_000_000],
    "negative": [1, -1, 2],
}
ENDLESS = Sampling(max_tokens=MAX_MODEL_LEN - 8)


def pool_all(engine: Engine, prompts: list[list[int]]) -> list[Pooled | BaseException]:
    async def gather() -> list[Pooled | BaseException]:
        return await asyncio.gather(*map(engine.pool, prompts), return_exceptions=True)

    return ask(engine, gather())


def test_many_at_a_time_answer_as_one_by_one_and_in_order(pooling_engine: Engine) -> None:
    draw = random.Random(7)
    prompts = [[draw.randrange(1, 250) for _ in range(draw.randrange(1, 60))] for _ in range(40)]
    prompts += [[3] * pooling_engine.max_model_len]
    alone = [ask(pooling_engine, pooling_engine.pool(tuple(ids))) for ids in prompts]
    for ids, pooled, beside in zip(prompts, alone, pool_all(pooling_engine, prompts), strict=True):
        assert isinstance(beside, Pooled)
        assert beside.values == pytest.approx(pooled.values, abs=1e-5)
        assert len(pooled.values) == LABELS
        assert all(type(value) is float and math.isfinite(value) for value in pooled.values)
        assert pooled.cached_tokens + pooled.computed_tokens == len(ids)
    assert len({pooled.values for pooled in alone}) == len(prompts)


def test_an_engine_for_the_last_token_reads_nothing_else(pooling_engine: Engine) -> None:
    ids = [5, 6, 7]
    last = ask(pooling_engine, pooling_engine.pool(ids, [2]))
    assert last.rows == (last.values,)
    assert last.values == pytest.approx(ask(pooling_engine, pooling_engine.pool(ids)).values, abs=1e-5)
    with pytest.raises(EngineError, match=r"position 1 can't be read: .* token_classify reads every position"):
        ask(pooling_engine, pooling_engine.pool(ids, [1, 2]))
    with pytest.raises(EngineError, match="position 3 is outside the prompt of 3 tokens"):
        ask(pooling_engine, pooling_engine.pool(ids, [3]))
    assert request_count(pooling_engine) == 0


def test_a_bad_prompt_fails_alone(pooling_engine: Engine) -> None:
    good, *refused, also_good = pool_all(pooling_engine, [[1, 2], *BAD_PROMPTS.values(), [3, 4]])
    assert isinstance(good, Pooled)
    assert isinstance(also_good, Pooled)
    assert [type(error) for error in refused] == [EngineError] * len(BAD_PROMPTS)
    ask(pooling_engine, pooling_engine.health())


@pytest.mark.parametrize("bad", BAD_PROMPTS)
def test_a_bad_prompt_gets_no_text(generating_engine: Engine, bad: str) -> None:
    with pytest.raises(EngineError) as caught:
        ask(generating_engine, generating_engine.generate(BAD_PROMPTS[bad], Sampling(max_tokens=1)))
    assert caught.type is EngineError
    assert len(ask(generating_engine, generating_engine.generate([1], Sampling(max_tokens=1)))) == 1


def test_text_ends_at_the_limit_or_at_a_stop_string(generating_engine: Engine) -> None:
    (whole,) = ask(generating_engine, generating_engine.generate([1, 2, 3], Sampling(max_tokens=8)))
    assert (len(whole.token_ids), whole.finish_reason, whole.logprobs) == (8, "length", ())
    assert whole.cached_tokens + whole.computed_tokens == 3
    middle = whole.text[len(whole.text) // 2]
    (cut,) = ask(generating_engine, generating_engine.generate([1, 2, 3], Sampling(max_tokens=8, stop=(middle,))))
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(middle)], "stop")


def test_a_seed_repeats_its_samples(generating_engine: Engine) -> None:
    def draw(seed: int) -> list[str]:
        sampling = Sampling(max_tokens=12, n=3, temperature=1.0, seed=seed)
        return [sample.text for sample in ask(generating_engine, generating_engine.generate([1, 2], sampling))]

    first = draw(1)
    assert len(set(first)) == 3
    assert draw(1) == first
    assert draw(2) != first


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=4, n=2), Sampling(max_tokens=0)], ids=["n of greedy", "none"])
def test_sampling_that_makes_no_sense_is_refused(generating_engine: Engine, sampling: Sampling) -> None:
    with pytest.raises(EngineError):
        ask(generating_engine, generating_engine.generate([1], sampling))


def test_verdicts_have_a_log_probability_at_every_token(generating_engine: Engine) -> None:
    sampling = Sampling(max_tokens=5, verdict_ids=(10, 20, 30))
    (sample,) = ask(generating_engine, generating_engine.generate([1, 2, 3], sampling))
    assert len(sample.logprobs) == len(sample.token_ids) == 5
    for row, token in zip(sample.logprobs, sample.token_ids, strict=True):
        assert row.keys() == {10, 20, 30, token}
        assert all(value < 0 for value in row.values())


def test_a_cancelled_request_is_given_up_alone(generating_engine: Engine) -> None:
    future = generating_engine.submit(generating_engine.generate([1], ENDLESS))
    until(lambda: request_count(generating_engine) == 1)
    beside = generating_engine.submit(generating_engine.generate([1], Sampling(max_tokens=2)))
    future.cancel()
    assert beside.result(SECONDS)[0].finish_reason == "length"
    until(lambda: request_count(generating_engine) == 0)
    ask(generating_engine, generating_engine.health())


Start = Callable[..., FakeEngine]


@pytest.fixture
def start_fake() -> Iterator[Start]:
    """Starts fakes, and closes them at the end."""
    started: list[FakeEngine] = []

    def start(**arguments: Any) -> FakeEngine:
        started.append(FakeEngine(LABELS, MAX_MODEL_LEN, **arguments))
        return started[-1]

    yield start
    for engine in started:
        engine.close()


def test_the_fakes_numbers_are_the_same_everywhere(start_fake: Start) -> None:
    engine = start_fake()
    pooled = ask(engine, engine.pool([1, 2, 3]))
    assert pooled.values[:2] == (1.0521359185898325, -0.7080153261728217)
    assert all(-4 <= value < 4 for value in pooled.values)


def test_a_closed_engine_refuses_everything(start_fake: Start) -> None:
    engine = start_fake()
    waiting = engine.submit(engine.generate([1], Sampling(max_tokens=5)))
    engine.close()
    engine.close()
    with pytest.raises(EngineDead):
        engine.submit(engine.pool([1]))
    assert waiting.done()


def test_two_threads_may_close_an_engine(start_fake: Start) -> None:
    engine = start_fake(at={7: FakeFault.HANG})
    future = engine.submit(engine.pool([7]))
    closers = [threading.Thread(target=engine.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(SECONDS)
    with pytest.raises(EngineDead):
        future.result(SECONDS)


def test_a_request_past_its_deadline_fails_alone(start_fake: Start) -> None:
    engine = start_fake(at={7: FakeFault.HANG}, request_timeout_s=0.05)
    hung, good = pool_all(engine, [[7], [8]])
    assert isinstance(hung, EngineTimeout)
    assert isinstance(good, Pooled)
    ask(engine, engine.health())


def test_a_dead_engine_fails_what_it_holds_and_what_comes(start_fake: Start) -> None:
    engine = start_fake(at={7: FakeFault.HANG, 6: FakeFault.DIE})
    waiting = engine.submit(engine.pool([7]))
    with pytest.raises(EngineDead):
        ask(engine, engine.pool([1, 6]))
    with pytest.raises(EngineDead):
        waiting.result(SECONDS)
    for late in (engine.pool([1]), engine.health(), engine.generate([1], Sampling(max_tokens=1))):
        with pytest.raises(EngineDead):
            ask(engine, late)


def test_a_fake_can_die_be_killed_refuse_and_give_nothing_finite(start_fake: Start) -> None:
    dying = start_fake(die_after=2)
    assert [type(answer) for answer in pool_all(dying, [[1], [2], [3]])] == [Pooled, Pooled, EngineDead]
    killed = start_fake()
    killed.kill()
    with pytest.raises(EngineDead, match="killed"):
        ask(killed, killed.health())
    faulty = start_fake(at={7: FakeFault.REFUSE, 6: FakeFault.NAN})
    refused, broken, good = pool_all(faulty, [[7], [6], [5]])
    assert type(refused) is EngineError
    assert isinstance(broken, Pooled)
    assert all(map(math.isnan, broken.values))
    assert isinstance(good, Pooled)


def test_a_prompt_can_end_the_process() -> None:
    script = (
        "from actors.engine.fake_engine import FakeEngine, FakeFault\n"
        "engine = FakeEngine(1, 9, at={7: FakeFault.EXIT})\n"
        "engine.submit(engine.pool([7])).result()\n"
    )
    ended = run([sys.executable, "-c", script], check=False, capture_output=True, timeout=SECONDS)
    assert (ended.returncode, ended.stderr) == (1, b""), "an error of the script's own ends with 1 as well"


async def stay(admission: Admission, seconds: float) -> float:
    """When the stay ended, by the loop's clock."""
    async with admission.place():
        await asyncio.sleep(seconds)
        return asyncio.get_running_loop().time()


def test_requests_that_were_answered_are_counted_and_broken_ones_arent() -> None:
    async def two() -> list[tuple[int, int]]:
        admission, seen = Admission(2, SECONDS), list[tuple[int, int]]()
        for error in (None, EngineError("broken")):
            with suppress(EngineError):
                async with admission.place():
                    seen.append((admission.answered, admission.request_count))
                    if error is not None:
                        raise error
        return [*seen, (admission.answered, admission.request_count)]

    assert asyncio.run(two()) == [(0, 1), (1, 1), (1, 0)]


def test_no_more_than_the_limit_are_inside_and_the_others_wait_without_a_deadline() -> None:
    async def visits() -> tuple[list[float | BaseException], int]:
        admission = Admission(3, 60.0)
        stays = (stay(admission, 40.0) for _ in range(9))
        return await asyncio.gather(*stays, stay(admission, 1e9), return_exceptions=True), admission.request_count

    with asyncio.Runner(loop_factory=Clock) as runner:
        (*ended, too_long), left = runner.run(visits())
    assert ended == pytest.approx([40.0] * 3 + [80.0] * 3 + [120.0] * 3, abs=1)
    assert isinstance(too_long, EngineTimeout)
    assert left == 0


def test_a_request_that_waits_its_turn_inside_has_its_time_afterwards() -> None:
    async def one_at_a_time() -> list[object]:
        admission = Admission(64, 600.0)
        cache = asyncio.Semaphore(1)  # with room for one

        async def wait() -> float:
            async with admission.place(), cache:
                await asyncio.sleep(400)
                return asyncio.get_running_loop().time()

        hang = (stay(admission, 1e9) for _ in range(2))
        return await asyncio.gather(wait(), *hang, *(wait() for _ in range(7)), return_exceptions=True)

    with asyncio.Runner(loop_factory=Clock) as runner:
        first, *hung = (outcomes := runner.run(one_at_a_time()))[:3]
    assert [type(error) for error in hung] == [EngineTimeout, EngineTimeout]
    assert [first, *outcomes[3:]] == pytest.approx([400.0 * turn for turn in range(1, 9)], abs=1)


def test_an_engine_that_answers_nobody_fails_all_within_a_deadline() -> None:
    async def hang() -> tuple[list[object], float]:
        admission = Admission(32, 600.0)
        outcomes = await asyncio.gather(*(stay(admission, 1e9) for _ in range(32)), return_exceptions=True)
        return list(outcomes), asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=Clock) as runner:
        outcomes, seconds = runner.run(hang())
    assert {type(error) for error in outcomes} == {EngineTimeout}
    assert seconds == pytest.approx(600, abs=1)


def test_those_who_wait_for_a_place_die_too() -> None:
    async def crowd() -> list[float | BaseException]:
        admission = Admission(1, SECONDS)
        guests = [asyncio.ensure_future(stay(admission, SECONDS)) for _ in range(3)]
        await asyncio.sleep(0)
        admission.die("test")
        return await asyncio.gather(*guests, return_exceptions=True)

    assert [type(error) for error in asyncio.run(crowd())] == [EngineDead] * 3


def test_requests_with_the_context_of_the_oldest_follow_it_the_shortest_first_and_no_late_ones() -> None:
    async def visits() -> list[tuple[str, int]]:
        admission, order = Admission(1, SECONDS), list[tuple[str, int]]()

        async def visit(context: str, length: int) -> None:
            async with admission.place(context, length):
                order.append((context, length))
                if (context, length) == ("b", 2):
                    late.append(asyncio.ensure_future(visit("b", 1)))
                await asyncio.sleep(0)  # the late one is in the line before the place is free

        late: list[asyncio.Future[None]] = []
        await asyncio.gather(*(visit(*of) for of in [("a", 9), ("b", 3), ("", 7), ("a", 5), ("b", 2), ("", 6), ("b", 4)]))
        await late[0]
        return order

    expected = [("a", 9), ("b", 2), ("b", 3), ("b", 4), ("", 7), ("a", 5), ("", 6), ("b", 1)]
    assert asyncio.run(visits()) == expected


def test_a_place_isnt_lost_with_those_who_leave_the_line_or_at_the_moment_of_their_turn() -> None:
    async def crowd() -> list[float | BaseException]:
        admission = Admission(1, SECONDS)
        guests = [asyncio.ensure_future(stay(admission, 0.0)) for _ in range(4)]
        async with admission.place():
            await asyncio.sleep(0)
            guests[0].cancel()
        guests[1].cancel()  # its turn has come, and it hasn't seen that yet
        return await asyncio.gather(*guests, return_exceptions=True)

    ended = [type(outcome) for outcome in asyncio.run(crowd())]
    assert ended == [asyncio.CancelledError, asyncio.CancelledError, float, float]


def test_an_error_inside_a_place_stays_what_it_is() -> None:
    async def fail(error: BaseException) -> None:
        async with Admission(1, SECONDS).place():
            raise error

    for error in (TimeoutError("its own"), ValueError("its own")):
        with pytest.raises(type(error), match="its own"):
            asyncio.run(fail(error))


def test_a_stopped_loop_takes_no_work_and_leaves_none_unanswered() -> None:
    thread = LoopThread("test")
    endless = thread.submit(asyncio.sleep(SECONDS))
    thread.stop()
    assert endless.cancelled()
    with pytest.raises(EngineDead):
        thread.submit(asyncio.sleep(0))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by their environment in /proc")
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "tether.release()"])
def test_a_tether_ends_what_its_process_leaves_behind(end: str) -> None:
    script = (
        "import os, subprocess, sys\n"
        "from actors.engine.process_reaper import ProcessReaper\n"
        "from actors.engine.vllm_environment import variables\n"
        "tether = ProcessReaper()\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "free = subprocess.Popen(sleep)\n"
        "with variables(tether.variables):\n"
        "    held = subprocess.Popen(sleep)\n"
        "print(free.pid, held.pid, flush=True)\n"
        f"{end}\n"
        "os._exit(0)\n"
    )
    with Popen([sys.executable, "-c", script], stdout=PIPE, text=True) as process:
        assert process.stdout
        free, held_pid = map(int, process.stdout.readline().split())
        process.wait(SECONDS)
        until(lambda: not running(held_pid))
        assert running(free)
        os.kill(free, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory is found by the maps in /proc")
@pytest.mark.parametrize("ends_first", [True, False])
def test_a_tether_removes_the_shared_memory_of_what_it_holds_and_no_other(ends_first: bool) -> None:
    script = (
        "import os, subprocess, sys\n"
        "from actors.engine.process_reaper import ProcessReaper\n"
        "from actors.engine.vllm_environment import variables\n"
        "tether = ProcessReaper()\n"
        "sharing = 'from multiprocessing.shared_memory import SharedMemory; import setproctitle, time; '\n"
        "sharing += 'setproctitle.setproctitle(str(10**200)); '\n"
        "sharing += 'mine = SharedMemory(create=True, size=9); print(mine.name, flush=True); time.sleep(600)'\n"
        "free = subprocess.Popen([sys.executable, '-c', sharing], stdout=subprocess.PIPE, text=True)\n"
        "with variables(tether.variables):\n"
        "    held = subprocess.Popen([sys.executable, '-c', sharing], stdout=subprocess.PIPE, text=True)\n"
        "names = free.stdout.readline().strip(), held.stdout.readline().strip()\n"
        "tether.note()\n"
        f"if {ends_first}: held.kill(); held.wait()\n"
        "tether.release()\n"
        "print(free.pid, *names, flush=True)\n"
        "os._exit(0)\n"
    )
    with Popen([sys.executable, "-c", script], stdout=PIPE, text=True) as process:
        assert process.stdout
        pid, free, held = process.stdout.readline().split()
        there = [Path("/dev/shm", name).exists() for name in (free, held)]
        os.kill(int(pid), signal.SIGTERM)
        Path("/dev/shm", free).unlink(missing_ok=True)
    assert there == [True, False]
