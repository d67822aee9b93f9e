"""What only a GPU shows, in steps of a few minutes, for a card that is there for a quarter of an hour.

`card STEP`, or `card STEP SIZE`. Models have made-up weights, nothing is fetched, and every engine is a process of its own.
Without a GPU each step runs at the size `tiny`, to show that the step itself works.
"""

import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.speed import BLOCK, SIZES, Size, conversations, score_request, write_config

BATCHES = (7, 32, 256)
PAIRS = 64  # pairs of responses whose order is looked at, and so 128 prompts
ROUNDS = 3
FAMILIES = ("tiny-attributes", "tiny-internlm2", "tiny-math-rm", "tiny-first-logit")
VOTES, QUESTIONS, VOTE_TOKENS = 32, 16, 128


def main(arguments: Sequence[str]) -> None:
    """`card STEP`, or `card STEP SIZE` with a name of `bench.speed.SIZES`."""
    steps: dict[str, tuple[Callable[[str, Path], None], str]] = {
        "bytes": (compare_bytes, "8b"),
        "families": (compare_families, "tiny"),
        "short": (measure_short, "0.6b"),
        "endpoint": (measure_endpoint, "0.6b"),
        "votes": (measure_votes, "8b"),
        "start": (measure_start, "8b"),
        "parity": (run_parity, "tiny"),
    }
    if not arguments or arguments[0] not in steps:
        sys.exit(f"usage: python -m bench card STEP [SIZE], where STEP is one of: {', '.join(steps)}")
    step, size = steps[arguments[0]]
    size = arguments[1] if len(arguments) > 1 else size if _on_gpu() else "tiny"
    root = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 1 << 35 else None  # 16 GB of weights are written in seconds
    with tempfile.TemporaryDirectory(dir=root) as place:
        start = time.monotonic()
        step(size, Path(place))
        print(f"{arguments[0]} {size}: {time.monotonic() - start:.0f} s", flush=True)


def _on_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None


class Scored(NamedTuple):
    """Rewards in the order of the conversations, tokens of all prompts, and seconds: of the work, and of CPU by process."""

    rewards: list[float]
    tokens: int
    seconds: float
    cpu_seconds: list[float]


@dataclass(frozen=True)
class Load:
    """Conversations from a number on, and how they are given to an engine.

    `batch` at a time, 0 for all; in the order of a `shuffle`, 0 for their own.
    """

    first: int
    count: int
    batch: int = 0
    shuffle: int = 0


class Host:
    """An engine in a process of its own: our scorer, or vLLM's `LLM`."""

    def __init__(self, name: str, folder: Path | str, size: Size, *, bare: bool = False, **engine: Any) -> None:
        """`engine` has arguments of the engine; `deterministic` is a setting of ours. It starts while this returns."""
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, str(folder), size, bare, engine))
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
        """Score conversations, and wait for them."""
        self.send(load)
        return self.receive()

    def send(self, load: Load) -> None:
        """Have conversations scored while this process goes on."""
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
def _hosts(*starts: Callable[[], Host]) -> Iterator[list[Host]]:
    """Engines that start at the same time, without those that can't."""
    with ExitStack() as stack:
        hosts = []
        for start in starts:
            hosts.append(start())
            stack.callback(hosts[-1].close)
        yield [host for host in hosts if host.wait()]


def _serve(connection: Connection, folder: str, size: Size, bare: bool, engine: Mapping[str, Any]) -> None:
    """The process of a `Host`: an engine that scores what it is sent until the connection closes."""
    from actors.engine.vllm_environment import set_environment

    set_environment()  # quiet, and in IEEE float32, also where vLLM is bare
    start = time.monotonic()
    score, close = (_start_bare if bare else _start_ours)(folder, size, dict(engine))
    connection.send(time.monotonic() - start)
    while True:
        try:
            load = connection.recv()
        except EOFError:
            close()  # its memory is free before the next engine looks how much there is
            os._exit(0)
        connection.send(score(load))


def _cpu_seconds() -> list[float]:
    """CPU of this process and of each one below it."""
    import psutil

    this = psutil.Process()
    return [sum(process.cpu_times()[:2]) for process in (this, *this.children(recursive=True))]


def _groups(load: Load) -> list[list[int]]:
    """Positions of a load's conversations, batch by batch."""
    order = list(range(load.count))
    if load.shuffle:
        Random(load.shuffle).shuffle(order)
    step = load.batch or load.count
    return [order[at : at + step] for at in range(0, load.count, step)]


def _engine_arguments(size: Size, engine: dict[str, Any]) -> dict[str, Any]:
    """Arguments for an engine beside others on the same device: without a size of its cache, vLLM takes nearly all."""
    if not _on_gpu():
        return {"kv_cache_memory_bytes": 1 << 28, "enable_prefix_caching": False} | engine
    alone = {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 6 << 30, "enable_prefix_caching": False}
    return alone | engine


def _requests(renderer: Any, size: Size, load: Load) -> list[Any]:
    requests: list[Any] = renderer.render([score_request(*turns) for turns in conversations(size, load.first, load.count)])
    return requests


def _start_ours(folder: str, size: Size, engine: dict[str, Any]) -> tuple[Callable[[Load], Scored], Callable[[], None]]:
    from actors.launch.start_engine import start_engine
    from actors.rendering.renderer import Renderer
    from actors.reward_model import resolve_model
    from actors.scorers.head_scorer import HeadScorer
    from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings

    deterministic = bool(engine.pop("deterministic", False))
    arguments = _engine_arguments(size, engine)
    if deterministic and not _on_gpu():
        del arguments["enable_prefix_caching"]  # a setting of every deterministic engine on a CPU
    family = None if folder.startswith("tiny-") else "scalar"
    model = resolve_model(ModelSettings(model=folder, family=family), RenderSettings())
    renderer = Renderer(model, RenderSettings())
    live = start_engine(model, EngineSettings(engine_args=arguments, deterministic=deterministic))
    scorer = HeadScorer(model.family, model.weights, live)

    def score(load: Load) -> Scored:
        requests = _requests(renderer, size, load)
        rewards: list[float] = [0.0] * load.count
        before, start = _cpu_seconds(), time.monotonic()
        for group in _groups(load):
            blocks = [group[at : at + BLOCK] for at in range(0, len(group), BLOCK)]
            futures = [live.submit(scorer.score([requests[position] for position in block])) for block in blocks]
            for block, future in zip(blocks, futures, strict=True):
                for position, (response,) in zip(block, future.result(), strict=True):
                    assert response.reward is not None, response
                    rewards[position] = response.reward
        seconds = time.monotonic() - start
        tokens = sum(len(prompt.ids) for request in requests for prompt in request.prompts)
        used = [after - first for first, after in zip(before, _cpu_seconds(), strict=False)]
        return Scored(rewards, tokens, seconds, used)

    return score, live.close


def _start_bare(folder: str, size: Size, engine: dict[str, Any]) -> tuple[Callable[[Load], Scored], Callable[[], None]]:
    from vllm import LLM, PoolingParams
    from vllm.config import PoolerConfig

    from actors.rendering.renderer import Renderer
    from actors.reward_model import resolve_model
    from actors.settings.replica import ModelSettings, RenderSettings

    model = resolve_model(ModelSettings(model=folder, family="scalar"), RenderSettings())
    renderer = Renderer(model, RenderSettings())
    live: Any = LLM(
        model=folder, runner="pooling", convert="classify", dtype=model.dtype, max_model_len=model.context,
        pooler_config=PoolerConfig(task="classify", use_activation=False, seq_pooling_type="LAST"),
        **({} if _on_gpu() else {"enforce_eager": True}), **_engine_arguments(size, engine),
    )  # fmt: skip

    def score(load: Load) -> Scored:
        prompts = [
            {"prompt_token_ids": list(prompt.ids)}
            for request in _requests(renderer, size, load)
            for prompt in request.prompts
        ]
        rewards: list[float] = [0.0] * load.count
        before, start = _cpu_seconds(), time.monotonic()
        for group in _groups(load):
            outputs = live.encode(
                [prompts[position] for position in group],
                PoolingParams(use_activation=False), use_tqdm=False, pooling_task="classify",
            )  # fmt: skip
            for position, output in zip(group, outputs, strict=True):
                rewards[position] = float(output.outputs.data[-1])
        seconds = time.monotonic() - start
        used = [after - first for first, after in zip(before, _cpu_seconds(), strict=False)]
        return Scored(rewards, sum(len(prompt["prompt_token_ids"]) for prompt in prompts), seconds, used)

    return score, live.llm_engine.engine_core.shutdown


def write_weights(folder: Path, size: Size, built_in: str = "scalar") -> Path:
    """A whole checkpoint of random weights as a model is initialised, so that numbers are of the size of real ones.

    All but `scalar` write text.
    """
    import torch
    from safetensors.torch import save_file

    write_config(folder, size, built_in)
    device = "cuda" if _on_gpu() else "cpu"
    dtype = getattr(torch, size.dtype)
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> Any:
        return (torch.randn(shape, generator=generator, device=device) * 0.02).to(dtype).cpu()

    narrow = size.key_value_heads * size.head_size
    wide = size.heads * size.head_size
    ones = torch.ones(size.hidden, dtype=dtype)
    head = {"score.weight": draw(1, size.hidden)}
    if built_in != "scalar":
        head = {"lm_head.weight": draw(size.vocabulary, size.hidden)}
    index = {}
    shards: list[dict[str, Any]] = [
        {
            "model.embed_tokens.weight": draw(size.vocabulary, size.hidden),
            "model.norm.weight": ones.clone(),
            **head,
        }
    ]
    for layer in range(size.layers + 1):
        if layer % 4 == 0 or layer == size.layers:  # a file for every four layers, and no more of them in memory
            file = f"model-{layer:03}.safetensors"
            for shard in shards:
                save_file(shard, folder / file, metadata={"format": "pt"})
                index.update(dict.fromkeys(shard, file))
            shards = [{}]
        if layer == size.layers:
            break
        name = f"model.layers.{layer}"
        shards[0] |= {
            f"{name}.self_attn.q_proj.weight": draw(wide, size.hidden),
            f"{name}.self_attn.k_proj.weight": draw(narrow, size.hidden),
            f"{name}.self_attn.v_proj.weight": draw(narrow, size.hidden),
            f"{name}.self_attn.o_proj.weight": draw(size.hidden, wide),
            f"{name}.mlp.gate_proj.weight": draw(size.intermediate, size.hidden),
            f"{name}.mlp.up_proj.weight": draw(size.intermediate, size.hidden),
            f"{name}.mlp.down_proj.weight": draw(size.hidden, size.intermediate),
            f"{name}.input_layernorm.weight": ones.clone(),
            f"{name}.post_attention_layernorm.weight": ones.clone(),
        }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def _print_drift(name: str, reference: Sequence[float], rewards: Sequence[float]) -> None:
    """One row of a table of drift: equal ones, the largest and mean difference, and pairs whose order changed."""
    differences = [abs(first - second) for first, second in zip(reference, rewards, strict=True)]
    orders = [[first < second for first, second in zip(side[::2], side[1::2], strict=True)] for side in (reference, rewards)]
    changed = sum(first != second for first, second in zip(*orders, strict=True))
    equal = differences.count(0.0)
    print(
        f"  {name}: {equal} of {len(rewards)} equal, largest {max(differences):.3g}, "
        f"mean {statistics.fmean(differences):.3g}, order changed in {changed} of {len(orders[0])} pairs",
        flush=True,
    )


def _print_bytes(first: Host, second: Host, count: int) -> list[float]:
    """The drift of an engine's rewards by batch and order, and of a second engine's; returns the rewards at batch 1."""
    reference = first.score(Load(0, count, 1)).rewards
    print(f"{first.name}, against batch 1; rewards' standard deviation {statistics.pstdev(reference):.3g}")
    for batch in BATCHES:
        _print_drift(f"batch {batch}", reference, first.score(Load(0, count, batch)).rewards)
        _print_drift(f"batch {batch}, shuffled", reference, first.score(Load(0, count, batch, shuffle=batch)).rewards)
    _print_drift("batch 1 again", reference, first.score(Load(0, count, 1)).rewards)
    _print_drift("second engine, batch 1", reference, second.score(Load(0, count, 1)).rewards)
    _print_drift("second engine, batch 32, shuffled", reference, second.score(Load(0, count, 32, shuffle=5)).rewards)
    first.send(Load(0, count // 2, 0))
    second.send(Load(count // 2, count - count // 2, 0))
    _print_drift("half of both at once", reference, [*first.receive().rewards, *second.receive().rewards])
    return reference


def compare_bytes(name: str, place: Path) -> None:
    """Bytes and drift of rewards with and without `deterministic`, FP8 beside bfloat16, and the speed of each."""
    size = SIZES[name]
    folder = write_weights(place / "model", size)
    small: dict[str, Any] = {"kv_cache_memory_bytes": 3 << 30} if _on_gpu() else {}
    starts: list[Callable[[], Host]] = [
        partial(Host, "default", folder, size),
        partial(Host, "default, second", folder, size, **small),
        partial(Host, "deterministic", folder, size, deterministic=True),
        partial(Host, "deterministic, second", folder, size, deterministic=True, **small),
    ]
    if _on_gpu():
        starts += [
            partial(Host, "fp8", folder, size, quantization="fp8"),
            partial(Host, "bare fp8", folder, size, bare=True, quantization="fp8"),
        ]
    with _hosts(*starts) as hosts:
        count = 2 * PAIRS if _on_gpu() else 32
        engines = {host.name: host for host in hosts}
        reference = _print_bytes(engines["default"], engines["default, second"], count)
        if deterministic := engines.get("deterministic"):
            exact = _print_bytes(deterministic, engines["deterministic, second"], count)
            _print_drift("deterministic against default, both at batch 1", reference, exact)
        eight_bit = [host for host in hosts if "fp8" in host.name]
        for host in eight_bit:
            rewards = host.score(Load(0, count, 1)).rewards
            _print_drift(f"{host.name} against bfloat16, both at batch 1", reference, rewards)
            _print_drift(f"{host.name} at batch 32 against batch 1", rewards, host.score(Load(0, count, 32)).rewards)
        measured = [host for host in hosts if "second" not in host.name]
        _measure(measured, size, size.conversations, against=[engines["default"], *eight_bit[1:]])


def _measure(hosts: Sequence[Host], size: Size, count: int, against: Sequence[Host]) -> None:
    """Rounds in turns, after one that warms up: tokens and conversations a second, and the ratios to some of the engines."""
    rates: dict[str, list[float]] = {host.name: [] for host in hosts}
    for number in range(ROUNDS + 1):
        for host in hosts:
            with _utilisation() as busy:
                scored = host.score(Load(1000 + number * count, count))
            if number:
                rates[host.name].append(scored.tokens / scored.seconds)
            busiest = busy[0] if busy else "unknown"
            cpu = ", ".join(f"{used / scored.seconds:.2f}" for used in scored.cpu_seconds if used > 0.05 * scored.seconds)
            print(
                f"round {number}, {host.name}: {scored.tokens / scored.seconds:,.0f} tokens/s, "
                f"{count / scored.seconds:,.0f} items/s; CPUs of the processes {cpu}; GPU busy {busiest}",
                flush=True,
            )
    for peer, host in itertools.product(against, hosts):
        if peer is not host:
            ratios = sorted(ours / theirs for ours, theirs in zip(rates[host.name], rates[peer.name], strict=True))
            print(f"{host.name} / {peer.name}: {ratios[0]:.2f}, {statistics.median(ratios):.2f}, {ratios[-1]:.2f}")


@contextmanager
def _utilisation() -> Iterator[list[str]]:
    """Appends, at its end, the mean of the GPU's use in the block, in percent, sampled four times a second."""
    result: list[str] = []
    if not _on_gpu():
        yield result
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "250"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as sampler:
        samples: list[float] = []
        assert sampler.stdout is not None
        lines = sampler.stdout
        reader = threading.Thread(target=lambda: samples.extend(float(line) for line in lines if line.strip().isdigit()))
        reader.start()
        try:
            yield result
        finally:
            sampler.terminate()
            reader.join()
            result.append(f"{statistics.fmean(samples):.0f} %" if samples else "unknown")


def compare_families(name: str, place: Path) -> None:
    """Bytes of built-in models in their precision, float32, on two engines of each, with and without `deterministic`."""
    size = SIZES[name]
    eager: dict[str, Any] = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30} if _on_gpu() else {}
    starts: list[Callable[[], Host]] = []
    for model, deterministic in itertools.product(FAMILIES if _on_gpu() else FAMILIES[:1], (False, True)):
        title = f"{model}{', deterministic' if deterministic else ''}"
        start = partial(Host, folder=model, size=size, deterministic=deterministic, **eager)
        starts += [partial(start, title), partial(start, f"{title}, second")]
    with _hosts(*starts) as hosts:
        for first, second in zip(hosts[::2], hosts[1::2], strict=True):
            _print_bytes(first, second, 2 * PAIRS if _on_gpu() else 16)


def measure_short(name: str, place: Path) -> None:
    """Short rows: our scorer beside vLLM's `LLM`, and the whole job; what bounds them is what is busy."""
    size = SIZES[name]._replace(words=190)  # prompts of about 300 tokens
    folder = write_weights(place / "model", size)
    count = 4000 if _on_gpu() else 60
    with _hosts(partial(Host, "ours", folder, size), partial(Host, "bare", folder, size, bare=True)) as hosts:
        _measure(hosts, size, count, against=hosts[1:])
    from bench.speed import run_job

    run_job(folder, size._replace(conversations=count), place, {})


def measure_endpoint(name: str, place: Path) -> None:
    """`assay serve` beside vLLM's server: prompts of 50, 300 and 1,000 tokens, and bursts of 1,024."""
    from bench import serve

    size = SIZES[name]
    folder = write_weights(place / "model", size)
    few = not _on_gpu()
    cases = [
        serve.Case(f"{name}-{tokens}", folder, 30 if few else requests, tokens, clients=8 if few else clients)
        for tokens, requests, clients in ((50, 2000, 64), (300, 2000, 64), (1000, 600, 64), (300, 1024, 1024))
    ]
    engine = serve.ENGINE if few else {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 20 << 30}
    serve.measure(cases, place, engine, dtype=size.dtype)


def measure_votes(name: str, place: Path) -> None:
    """A judge's votes: all of a question at once, as our scorer sends them, in one request, and one after the other."""
    import asyncio

    from actors.engine.protocol import Sampling
    from actors.launch.start_engine import start_engine
    from actors.reward_model import resolve_model
    from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings

    size = SIZES[name]
    folder = write_weights(place / "judge", size, "genrm")
    arguments = {"kv_cache_memory_bytes": (40 << 30) if _on_gpu() else 1 << 28}
    model = resolve_model(ModelSettings(model=str(folder), family="genrm-boxed"), RenderSettings())
    live = start_engine(model, EngineSettings(engine_args=arguments))
    votes, questions, tokens = (VOTES, QUESTIONS, VOTE_TOKENS) if _on_gpu() else (4, 2, 16)
    length = 1000 if _on_gpu() else 100

    def prompt(way: str, question: int) -> list[int]:
        draw = Random(f"{way} {question}")
        return [draw.randrange(10, 900) for _ in range(length)]

    async def generate(ids: list[int], seed: int, n: int) -> list[Any]:
        sampling = Sampling(max_tokens=tokens, n=n, temperature=0.6, top_p=0.95, seed=seed)
        return list(await live.generate(ids, sampling))

    async def at_once(question: int) -> list[Any]:
        ids = prompt("at once", question)
        drawn = await asyncio.gather(*(generate(ids, vote, 1) for vote in range(votes)))
        return list(itertools.chain.from_iterable(drawn))

    async def in_one_request(question: int) -> list[Any]:
        return await generate(prompt("one request", question), 0, votes)

    async def one_by_one(question: int) -> list[Any]:
        ids = prompt("one by one", question)
        return [*itertools.chain.from_iterable([await generate(ids, v, 1) for v in range(votes)])]

    async def run(way: Callable[[int], Any]) -> list[Any]:
        return [*itertools.chain.from_iterable(await asyncio.gather(*map(way, range(questions))))]

    live.submit(run(lambda question: generate(prompt("warm-up", question), 0, 1))).result()
    for title, way in {"all at once": at_once, "in one request": in_one_request, "one by one": one_by_one}.items():
        start = time.monotonic()
        generations = live.submit(run(way)).result()
        seconds = time.monotonic() - start
        written = sum(len(generation.token_ids) for generation in generations)
        # The samples of one request share its prompt, which is counted with each of them.
        computed = sum(generation.computed_tokens for generation in generations) // (votes if way is in_one_request else 1)
        print(
            f"{name}, {questions} questions of {length} tokens with {votes} votes, {title}: {seconds:.1f} s, "
            f"{written / seconds:,.0f} tokens/s written, "
            f"{computed:,} tokens of prompts computed of {questions * votes * length:,}",
            flush=True,
        )
    live.close()


def measure_start(name: str, place: Path) -> None:
    """The start of an engine with nothing compiled, and again with vLLM's compiled code in its cache."""
    size = SIZES[name]
    folder = write_weights(place / "model", size)
    os.environ["VLLM_CACHE_ROOT"] = str(place / "cache")
    for title in ("cold", "warm", "warm"):
        host = Host(f"{name}, {title}", folder, size)
        host.wait()
        host.close()


def run_parity(name: str, place: Path) -> None:
    """The tests of models and engines, which compare every family with transformers."""
    folders = ["tests/actors/models", "tests/actors/engine", "tests/actors/scorers"] if _on_gpu() else ["tests/actors/text"]
    workers = ["-n", "10", "--dist", "loadfile"] if _on_gpu() else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x" if not _on_gpu() else "-rf",
        *workers,
        *folders,
        "-p",
        "no:cacheprovider",
    ]
    subprocess.run(command, check=False, env=os.environ | {"CI": ""})
