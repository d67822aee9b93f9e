"""The engine's full speed: our scorer, and the whole job, beside vLLM's own offline class `LLM` on the same prompts.

A random LlamaForSequenceClassification scores made-up conversations. Both engines run all the time, with the same settings
and without a prefix cache, and take turns: each round is a stretch of prompts that neither has seen. Then `assay score`
scores as many conversations, alone; its rate counts from its first part to its last.
"""

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.launch.start_engine import start_engine
from actors.records import Message, RenderedRequest, Response, Role, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel, resolve_model
from actors.scorers.head_scorer import HeadScorer
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from tiny_models.tasks import WORDS

ROUNDS = 3
DUMMY = {"load_format": "dummy"}  # vLLM makes up the weights
BLOCK = 64  # conversations in a call of the scorer, all calls at a time


class Size(NamedTuple):
    """A shape of the model, the words of a response, and the conversations of a round."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    vocabulary: int
    words: int
    conversations: int
    dtype: str
    head_dim: int | None = None

    @property
    def head_size(self) -> int:
        """The width of an attention head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """The weights that every token is multiplied with."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.key_value_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)


SIZES = {
    "tiny": Size(4, 256, 704, 4, 2, 1024, 60, 200, "float32"),
    "0.6b": Size(28, 1024, 3072, 16, 8, 151_936, 300, 4000, "bfloat16", 128),
    "1b": Size(16, 2048, 8192, 32, 8, 128_256, 300, 4000, "bfloat16"),
    "8b": Size(32, 4096, 14336, 32, 8, 128_256, 300, 600, "bfloat16"),
    "32b": Size(64, 5120, 25600, 64, 8, 151_936, 300, 150, "bfloat16", 128),
}
"""`0.6b`, `1b`, `8b` and `32b` have the sizes of Qwen3 0.6B, Llama 3.2 1B, Llama 3.1 8B and Qwen3 32B; the tokenizer is
tiny-scalar's."""


def main(arguments: Sequence[str]) -> None:
    """`speed`, or `speed SIZE`, with the names of `SIZES`; `speed SIZE job` for the whole job alone."""
    name = arguments[0] if arguments else "tiny"
    size = SIZES[name]
    with tempfile.TemporaryDirectory() as place:
        folder = write_model(Path(place) / "model", size)
        if arguments[1:] != ["job"]:
            compare(folder, size)
        run_job(folder, size, Path(place), DUMMY)


def write_model(folder: Path, size: Size) -> Path:
    """A checkpoint of a config, a tokenizer and a head: vLLM makes up all weights."""
    import torch
    from safetensors.torch import save_file

    write_config(folder, size)
    save_file({"score.weight": torch.zeros(1, size.hidden)}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_config(folder: Path, size: Size, built_in: str = "scalar") -> Path:
    """The config of a built-in model in another size, with its tokenizer, and without weights."""
    folder.mkdir()
    config = json.loads((BUILT_IN / built_in / "config.json").read_text())
    config |= {
        "num_hidden_layers": size.layers,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_value_heads,
        "head_dim": size.head_size,
        "vocab_size": size.vocabulary,
        "dtype": size.dtype,
    }
    (folder / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(BUILT_IN / built_in / file, folder)
    return folder


def conversations(size: Size, first: int, count: int) -> Iterator[tuple[str, str]]:
    """Questions and answers; the lengths of the answers vary by a factor of 4."""
    for number in range(first, first + count):
        draw = Random(number)
        yield (
            f"{number}: {' '.join(draw.choices(WORDS, k=20))}?",
            " ".join(draw.choices(WORDS, k=draw.randrange(size.words // 2, 2 * size.words))),
        )


def compare(folder: Path, size: Size) -> None:
    """Both engines in turns; tokens per second of each round."""
    import torch

    # Both engines are on one device: on a GPU each takes its part of the memory, on a CPU vLLM's default is most of it.
    on_gpu = torch.cuda.is_available()
    share = {"gpu_memory_utilization": 0.45} if on_gpu else {"kv_cache_memory_bytes": 1 << 28, "enforce_eager": True}
    extra: dict[str, Any] = {**DUMMY, "enable_prefix_caching": False, **share}
    model = resolve_model(ModelSettings(model=str(folder), family="scalar"), RenderSettings())
    renderer = Renderer(model, RenderSettings())
    engine = start_engine(model, EngineSettings(engine_args=extra))
    scorer = HeadScorer(model.family, model.weights, engine)
    peer = _start_peer(folder, model, extra)
    rates: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(ROUNDS + 1):
        requests = renderer.render(
            [score_request(*turns) for turns in conversations(size, number * size.conversations, size.conversations)]
        )
        tokens = sum(len(prompt.ids) for request in requests for prompt in request.prompts)
        seconds = {"ours": _time_ours(scorer, requests), "peer": _time_peer(peer, requests)}
        if number:  # the first round warms both up
            for who, took in seconds.items():
                rates[who].append(tokens / took)
        print({who: f"{tokens / took:,.0f} tokens/s" for who, took in seconds.items()}, flush=True)
    ratios = sorted(ours / peer_rate for ours, peer_rate in zip(rates["ours"], rates["peer"], strict=True))
    print(f"ours / vLLM's LLM: {ratios[0]:.2f}, {statistics.median(ratios):.2f}, {ratios[-1]:.2f} (min, median, max)")
    print(f"{2 * size.parameters * statistics.median(rates['ours']) / 1e12:,.1f} TFLOP/s in the layers' matrices")
    engine.close()


def score_request(question: str, answer: str) -> ScoreRequest:
    """A conversation of two turns, whose answer is scored."""
    return ScoreRequest((Message(Role.USER, question),), (Response("r", answer),))


def _start_peer(folder: Path, model: RewardModel, extra: dict[str, Any]) -> Any:
    from vllm import LLM
    from vllm.config import PoolerConfig

    return LLM(
        model=str(folder), runner="pooling", convert="classify", dtype=model.dtype, max_model_len=model.context,
        pooler_config=PoolerConfig(task="classify", use_activation=False, seq_pooling_type="LAST"),
        **{"gpu_memory_utilization": 0.1} | extra,
    )  # fmt: skip


def _time_ours(scorer: HeadScorer, requests: Sequence[RenderedRequest]) -> float:
    start = time.monotonic()
    blocks = [requests[at : at + BLOCK] for at in range(0, len(requests), BLOCK)]
    engine = scorer._engine
    futures = [engine.submit(scorer.score(block)) for block in blocks]
    scores = list(itertools.chain.from_iterable(future.result() for future in futures))
    seconds = time.monotonic() - start
    assert all(score.reward is not None for (score,) in scores)
    return seconds


def _time_peer(peer: Any, requests: Sequence[RenderedRequest]) -> float:
    from vllm import PoolingParams

    prompts = [{"prompt_token_ids": list(prompt.ids)} for request in requests for prompt in request.prompts]
    start = time.monotonic()
    outputs = peer.encode(prompts, PoolingParams(use_activation=False), use_tqdm=False, pooling_task="classify")
    seconds = time.monotonic() - start
    assert len(outputs) == len(prompts)
    return seconds


def write_corpus(path: Path, turns: Iterable[tuple[str, str]]) -> None:
    """A line with `messages` for each question with its answer."""
    with path.open("w", encoding="utf-8") as lines:
        for question, answer in turns:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            lines.write(json.dumps({"messages": messages}) + "\n")


def run_job(folder: Path, size: Size, place: Path, engine: Mapping[str, Any]) -> None:
    """`assay score` on as many conversations as three rounds: tokens per second between its first part and its last."""
    corpus, scored = place / "corpus.jsonl", place / "scored"
    write_corpus(corpus, conversations(size, 1_000_000, ROUNDS * size.conversations))
    arguments = {"enable_prefix_caching": "false", **engine}
    options = [
        "--family",
        "scalar",
        *(part for name in arguments for part in ("--set", f"engine.engine_args.{name}={arguments[name]}")),
    ]
    rows = ["--set", f"work.part_rows={size.conversations // 8}"]
    command = [sys.executable, "-m", "assay", "score", str(corpus), str(scored), "--model", str(folder), *rows, *options]
    subprocess.run(command, check=True)
    parts = sorted((path.stat().st_mtime, path) for path in scored.glob("parts/*.parquet"))
    tokens = [sum(pq.read_table(path, columns=["prompt_tokens"])["prompt_tokens"].to_pylist()) for _, path in parts]
    seconds = parts[-1][0] - parts[0][0]
    print(f"assay score: {sum(tokens[1:]) / seconds:,.0f} tokens/s over {len(parts)} parts, {seconds:.1f} s")
