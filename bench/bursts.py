"""Do an endpoint's replicas stay busy, follow bursts, and lose nothing? Fake engines with a fixed service time.

`bursts` does all three steps, `bursts scaling`, `bursts autoscaling` or `bursts kill` one of them. A replica answers 8
requests at a time, each in a second. Scaling: 1, 4 and 16 replicas, each asked by 16 clients for 20 seconds, against
the ideal rate. Autoscaling: bursts of 1,024 requests at once, one every 30 s, with one to four replicas. Kill: a burst
of 1,024 on four replicas, of which one is killed in its midst; clients ask again where they are told to.
"""

import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
from ray import serve

from tests.support.endpoints import deploy, ray_serve, replica_pids, wait

MODEL = "tiny-attributes"
IN_FLIGHT, SERVICE_S = 8, 1.0
SIZES = (1, 4, 16)
SCALING_S = 20.0
BURST, BURSTS, EVERY_S = 1024, 4, 30.0
TOKENS = 50


class Answers(NamedTuple):
    """What a load got: seconds until each answer with 200, and how often each other status came."""

    seconds: list[float]
    others: Counter[int]

    def __str__(self) -> str:
        ordered = sorted(self.seconds)
        p50, p99 = statistics.median(ordered), ordered[int(0.99 * len(ordered))]
        return f"{len(ordered):,} answers, p50 {p50:.1f} s, p99 {p99:.1f} s, other statuses {dict(self.others)}"


def main(arguments: Sequence[str]) -> None:
    """All steps, or those that are named."""
    steps = {"scaling": _scale, "autoscaling": _autoscale, "kill": _kill}
    if unknown := set(arguments) - steps.keys():
        sys.exit(f"no step: {', '.join(unknown)}; there are {', '.join(steps)}")
    with ray_serve() as address:
        for name in arguments or steps:
            steps[name](address)


def _scale(address: str) -> None:
    rates: dict[int, float] = {}
    for replicas in SIZES:
        _deploy(replicas, replicas)
        start = time.monotonic()
        answers = asyncio.run(_ask(address, replicas * IN_FLIGHT * 2, until=start + SCALING_S))
        rates[replicas] = len(answers.seconds) / (time.monotonic() - start)
        ideal = replicas * IN_FLIGHT / SERVICE_S
        print(f"{replicas:>3} replicas: {rates[replicas]:.1f} a second of {ideal:.0f}; {answers}", flush=True)
        print(f"    efficiency {rates[replicas] / ideal:.2f}, {rates[replicas] / rates[SIZES[0]]:.1f} times one", flush=True)


def _autoscale(address: str) -> None:
    _deploy(1, 4)
    for burst in range(BURSTS):
        start = time.monotonic()
        answers = asyncio.run(_ask(address, BURST, requests=BURST))
        seconds = time.monotonic() - start
        print(f"burst {burst}: {seconds:.1f} s, {len(replica_pids())} replicas at its end; {answers}", flush=True)
        time.sleep(max(0.0, EVERY_S - seconds))


def _kill(address: str) -> None:
    _deploy(4, 4)

    async def burst() -> Answers:
        load = asyncio.create_task(_ask(address, BURST, requests=BURST))
        await asyncio.sleep(5 * SERVICE_S)
        os.kill((await asyncio.to_thread(replica_pids))[0], signal.SIGKILL)
        return await load

    answers = asyncio.run(burst())
    print(f"a replica of four killed: {BURST - len(answers.seconds)} lost of {BURST:,}; {answers}", flush=True)


def _deploy(least: int, most: int) -> None:
    scaling = {"min_replicas": least, "max_replicas": most, "target_requests": 64, "upscale_delay_s": 0.0}
    engine = {"max_in_flight": IN_FLIGHT, "engine_args": {"latency_s": SERVICE_S}}
    serve.delete("assay")  # the replicas of the step before would be kept for as long as their load may come back
    deploy(MODEL, scaling=scaling, engine=engine, limits={"max_requests": 2 * BURST})
    wait(lambda: len(replica_pids()) == least and serve.status().applications["assay"].status == "RUNNING")


async def _ask(address: str, clients: int, *, requests: int | None = None, until: float | None = None) -> Answers:
    """So many requests, or as many as are answered until a time, each sent again until it is answered."""
    answers = Answers([], Counter())
    numbers = iter(range(requests or sys.maxsize))

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            if until is not None and time.monotonic() > until:
                return
            start = time.monotonic()
            body = {"input": [10 + (number + place) % 900 for place in range(TOKENS)]}
            while True:
                async with session.post(f"{address}/pooling", json=body) as answer:
                    await answer.read()
                    if answer.status == 200:
                        break
                    answers.others[answer.status] += 1
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
            answers.seconds.append(time.monotonic() - start)

    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return answers
