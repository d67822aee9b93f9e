"""RewardBench 2's two: `eval-set.json`, the score of each subset, and `eval-set-scores.json`, all questions, as lists.

Their code names them eval-set/MODEL.json and eval-set-scores/MODEL.json. Of a question, `text` and `scores` are lists, the
right responses first, and `num_correct` says how many those are. `text` has conversations, as their code writes them for a
model with `custom_dialogue`. `results` is the credit of the first response; in Ties it says nothing, and their code computes
that subset's score from `scores`, `id` and `num_correct`.

Of a judge that writes, their code has `eval-set.json` only.

Source: allenai/reward-bench, scripts/run_v2.py, scripts/run_generative_v2.py and rewardbench/utils.py
(reroll_and_score_dataset, process_single_model).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.results.evaluation.benchmark import rewards_of
from pipelines.results.evaluation.benchmarks.reward_bench_2 import best_of
from pipelines.results.evaluation.peer_format import GradedRow, JudgedRun, PeerFormat, json_bytes
from pipelines.results.evaluation.peers.reward_bench import ACCURACIES, SCORES, about, columns_of

Conversation = list[dict[str, Any]]


def _files(rows: Iterable[GradedRow], run: JudgedRun) -> Iterator[tuple[str, bytes]]:
    yield ACCURACIES, json_bytes(about(run) | run.subsets)
    if not run.writes:
        yield SCORES, json_bytes(columns_of(map(_scored, rows)) | about(run))


def _scored(graded: GradedRow) -> dict[str, Any]:
    row, item = graded
    chosen, rejected = rewards_of(item, "chosen"), rewards_of(item, "rejected")
    return {
        "id": row["id"],
        "subset": row["subset"],
        "text": [_conversation(row["prompt"], text) for text in (*_texts(row["chosen"]), *_texts(row["rejected"]))],
        "scores": [*chosen, *rejected],
        "results": best_of(chosen, rejected),
        "num_correct": len(chosen),
    }


def _texts(side: str | list[str]) -> list[str]:
    return [side] if isinstance(side, str) else side


def _conversation(prompt: str | Conversation, text: str) -> Conversation:
    context = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return [*context, {"role": "assistant", "content": text}]


PEER_FORMAT = PeerFormat("reward-bench-2", _files)
