"""A published body on CPUs: `assay score` beside vLLM's `LLM.encode` and the plain loops of transformers.

A model of `tiny_models.real` in float32, below a head of random numbers, scores forty conversations: pages of Python's own
reference, or the rows of a file. The ways take turns, each round in a process of its own, so that no other holds memory or
threads meanwhile. `assay score` counts from its first part to its last, the others from their second conversation on.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pyarrow.parquet as pq

from tiny_models.real import checkpoint

MODEL = "smollm2-head"
ROUNDS = 3
ROWS, CHARACTERS = 40, 2400
PADDED_ROWS = 8
BIND = "VLLM_CPU_OMP_THREADS_BIND"
OURS, BARE, BARE_ON_ALL = "assay score", "LLM.encode", "LLM.encode on all CPUs"
LOOP, PADDED = "loop", f"loop, {PADDED_ROWS} padded"

Prompts = list[list[int]]


def main(arguments: Sequence[str]) -> None:
    """`real`, `real MODEL`, `real MODEL ROUNDS` or `real MODEL ROUNDS CORPUS`, a file of rows with `messages`."""
    if arguments[:1] == ["--run"]:
        _run(*arguments[1:])
        return
    folder = checkpoint(arguments[0] if arguments else MODEL)
    rounds = int(arguments[1]) if len(arguments) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(arguments[2]) if len(arguments) > 2 else _write_corpus(Path(place, "corpus.jsonl"))
        rates: dict[str, list[float]] = {way: [] for way in (OURS, BARE, BARE_ON_ALL, LOOP, PADDED)}
        for number in range(rounds):
            for way, of_way in rates.items():
                of_way.append(_rate(way, folder, corpus, Path(place, f"scored-{number}")))
                load = os.getloadavg()[0]
                print(f"round {number + 1}, {way}: {of_way[-1]:,.0f} tokens/s, load {load:.0f}", flush=True)
    for way, of_way in rates.items():
        ratios = sorted(ours / rate for ours, rate in zip(rates[OURS], of_way, strict=True))
        print(f"assay score / {way}: {ratios[0]:.2f}, {statistics.median(ratios):.2f}, {ratios[-1]:.2f} (min, median, max)")


def _write_corpus(file: Path) -> Path:
    """Forty topics of Python's reference, as questions and answers of up to 2,400 characters."""
    with file.open("w", encoding="utf-8") as stream:
        for topic, text in sorted(topics.items())[:ROWS]:
            question = {"role": "user", "content": f"What does Python's reference say about {topic}?"}
            answer = {"role": "assistant", "content": text[:CHARACTERS].strip()}
            stream.write(json.dumps({"messages": [question, answer]}) + "\n")
    return file


def _rate(way: str, folder: Path, corpus: Path, scored: Path) -> float:
    """Prompt tokens a second of one round."""
    if way == OURS:
        return _rate_of_job(folder, corpus, scored)
    cpus = {BIND: ",".join(map(str, sorted(os.sched_getaffinity(0))))} if way == BARE_ON_ALL else {}
    # Through a file: vLLM's own log goes to standard output, to its last line.
    rate = scored.with_suffix(".rate")
    command = [sys.executable, "-m", "bench", "real", "--run", way, str(folder), str(corpus), str(rate)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **cpus})
    return float(rate.read_text())


def _rate_of_job(folder: Path, corpus: Path, scored: Path) -> float:
    rows = sum(1 for _ in corpus.open(encoding="utf-8"))
    options = ["--model", str(folder), "--family", "scalar", "--set", f"work.part_rows={max(1, rows // 10)}"]
    command = [sys.executable, "-m", "assay", "score", str(corpus), str(scored), *options]
    subprocess.run(command, check=True, capture_output=True)
    parts = sorted((path.stat().st_mtime, path) for path in scored.glob("parts/*.parquet"))
    tokens = [sum(pq.read_table(path, columns=["prompt_tokens"])["prompt_tokens"].to_pylist()) for _, path in parts]
    return sum(tokens[1:]) / (parts[-1][0] - parts[0][0])


def _run(way: str, folder: str, corpus: str, rate: str) -> None:
    """One round of a way that isn't ours, in this process: writes its tokens a second into a file."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    conversations = [json.loads(line)["messages"] for line in Path(corpus).read_text(encoding="utf-8").splitlines()]
    prompts = [tokenizer.apply_chat_template(turns, return_dict=False) for turns in conversations]
    score = _bare(folder) if way in (BARE, BARE_ON_ALL) else _loop(folder, 1 if way == LOOP else PADDED_ROWS)
    score(prompts[:1])  # the first pays for what is made once
    start = time.monotonic()
    score(prompts[1:])
    Path(rate).write_text(str(sum(map(len, prompts[1:])) / (time.monotonic() - start)))


def _bare(folder: str) -> Callable[[Prompts], None]:
    from vllm import LLM, PoolingParams
    from vllm.config import PoolerConfig

    pooler = PoolerConfig(task="classify", use_activation=False, seq_pooling_type="LAST")
    # vLLM converts what is called without "Text", and can't load a head on Gemma 3's text alone by its name.
    named = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))["architectures"]
    converted = {"architectures": [name.replace("TextFor", "For") for name in named]}
    # The cache's size as ours: vLLM's default is a large part of the machine's memory, all of which it writes.
    engine = LLM(
        model=folder, runner="pooling", convert="classify", dtype="float32", pooler_config=pooler, enforce_eager=True,
        kv_cache_memory_bytes=1 << 30, hf_overrides=converted,
    )  # fmt: skip

    def score(prompts: Prompts) -> None:
        inputs: Any = [{"prompt_token_ids": ids} for ids in prompts]
        engine.encode(inputs, PoolingParams(use_activation=False), use_tqdm=False, pooling_task="classify")

    return score


def _loop(folder: str, rows: int) -> Callable[[Prompts], None]:
    """A forward pass of transformers for each batch of so many rows, padded to the longest of them, in the file's order."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model: Any = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    padding = model.config.pad_token_id

    def score(prompts: Prompts) -> None:
        with torch.inference_mode():
            for at in range(0, len(prompts), rows):
                batch = prompts[at : at + rows]
                longest = max(map(len, batch))
                ids = torch.tensor([[*prompt, *[padding] * (longest - len(prompt))] for prompt in batch])
                mask = torch.tensor([[1] * len(prompt) + [0] * (longest - len(prompt)) for prompt in batch])
                model(input_ids=ids, attention_mask=mask)

    return score
