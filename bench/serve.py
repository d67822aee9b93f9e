"""The endpoint beside vLLM's own server: prompts per second on `/pooling`, and the latency of a request.

Three cases, each on both servers with the same engine settings: a random model of 28 million weights, with 100 requests of
1,000 tokens, where the engine's work dominates; tiny-attributes, with 2,000 requests of 50 tokens, where the work around the
engine does; and the same 2,000 prompts, 16 to a request. Three rounds each, alternating between the servers, which both run
all the time. 64 clients send at a time.
"""

import asyncio
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import aiohttp

from actors.checkpoint.checkpoint_files import BUILT_IN
from tests.support.endpoints import free_port, serving, wait

CLIENTS = 64
ROUNDS = 3
WARM_UP = 16
ENGINE = {"max_num_seqs": 128, "max_num_batched_tokens": 2048}


class Case(NamedTuple):
    """A model and its load: the number of requests, tokens per prompt, prompts per request, and clients at a time."""

    name: str
    folder: Path
    requests: int
    tokens: int
    together: int = 1
    clients: int = CLIENTS


class Round(NamedTuple):
    """The figures of one round: prompts per second, latencies of a request, and counts of HTTP statuses."""

    per_second: float
    p50_ms: float
    p99_ms: float
    statuses: dict[int, int]


def main(arguments: Sequence[str]) -> None:
    """`serve`, or `serve 28M`, `serve tiny` or `serve tiny-together` for one of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            Case("28M", write_model(Path(folder) / "28M"), 100, 1000),
            Case("tiny", BUILT_IN / "attributes", 2000, 50),
            Case("tiny-together", BUILT_IN / "attributes", 125, 50, 16),
        ]
        for case in cases:
            if not arguments or case.name in arguments:
                measure([case], Path(folder), ENGINE)


def measure(cases: Sequence[Case], folder: Path, engine: Mapping[str, object], dtype: str = "float32") -> None:
    """Measure both servers with cases of one model, and print minimum, median and maximum of each figure over the rounds."""
    model = cases[0].folder
    with ExitStack() as servers:
        flags = itertools.chain.from_iterable(
            ("--set", f"engine.engine_args.{name}={value}") for name, value in engine.items()
        )
        assay_address, _ = servers.enter_context(
            serving("--model", model, "--family", _family(model), *flags, log=folder / "assay.log", RAY_worker_niceness="0")
        )
        addresses = {"assay": assay_address, "vllm": servers.enter_context(_vllm(model, folder, engine, dtype))}
        for case in cases:
            _measure_case(case, addresses)


def _measure_case(case: Case, addresses: Mapping[str, str]) -> None:
    rounds: dict[str, list[Round]] = {name: [] for name in addresses}
    for address in addresses.values():
        asyncio.run(ask(address, case._replace(requests=WARM_UP), seed=-1))
    for number in range(ROUNDS):
        for name, address in addresses.items():
            rounds[name].append(asyncio.run(ask(address, case, seed=number)))
            print(f"{case.name} {name}: {rounds[name][-1]}", flush=True)
    ratios = sorted(assay.per_second / vllm.per_second for assay, vllm in zip(*rounds.values(), strict=True))
    for name, server_rounds in rounds.items():
        for figure in ("per_second", "p50_ms", "p99_ms"):
            values = sorted(getattr(server_round, figure) for server_round in server_rounds)
            print(f"{case.name} {name} {figure}: {values[0]:.1f} {statistics.median(values):.1f} {values[-1]:.1f}")
    print(f"{case.name} assay/vllm: {ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f} (min, median, max)")


async def ask(address: str, case: Case, seed: int) -> Round:
    """Send all requests of a round. Prompts differ between rounds, so that a prefix cache can't help."""
    rng = Random(f"{case.name} {seed}")
    prompts = [[rng.randrange(10, 900) for _ in range(case.tokens)] for _ in range(case.requests * case.together)]
    bodies = iter([prompts[at : at + case.together] for at in range(0, len(prompts), case.together)])
    seconds: list[float] = []
    statuses: dict[int, int] = {}

    async def client(session: aiohttp.ClientSession) -> None:
        for body in bodies:
            request_start = time.perf_counter()
            async with session.post(f"{address}/pooling", json={"input": body, "use_activation": False}) as answer:
                await answer.read()
            seconds.append(time.perf_counter() - request_start)
            statuses[answer.status] = statuses.get(answer.status, 0) + 1

    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=case.clients)) as session:
        start = time.perf_counter()
        await asyncio.gather(*(client(session) for _ in range(case.clients)))
        total_seconds = time.perf_counter() - start
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * len(ordered))]
    return Round(case.requests * case.together / total_seconds, 1000 * statistics.median(ordered), 1000 * p99, statuses)


@contextmanager
def _vllm(model: Path, folder: Path, engine: Mapping[str, object], dtype: str) -> Iterator[str]:
    """vLLM's own server with the same engine settings, once it is ready."""
    port = free_port()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in engine.items()]
    eager = [] if shutil.which("nvidia-smi") else ["--enforce-eager"]  # as our engines on CPUs
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port),
        "--host", "127.0.0.1", "--runner", "pooling", "--convert", "classify", "--dtype", dtype,
        "--pooler-config", '{"task": "classify", "use_activation": false}', *eager, *flags,
    ]  # fmt: skip
    environment = os.environ | {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    log = folder / "vllm.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait(lambda: _answers(port) or process.poll() is not None)
        if process.poll() is not None:
            sys.exit(log.read_text())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _answers(port: int) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _family(model: Path) -> str:
    return "attributes" if model == BUILT_IN / "attributes" else "scalar"


def write_model(folder: Path) -> Path:
    """A random LlamaForSequenceClassification of about 28 million weights, under tiny-scalar's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    torch.manual_seed(0)
    config: Any = LlamaConfig(
        vocab_size=1024, hidden_size=512, intermediate_size=1408, num_hidden_layers=9, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=2048, num_labels=1, pad_token_id=2, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(BUILT_IN / "scalar" / name, folder / name)
    return folder
