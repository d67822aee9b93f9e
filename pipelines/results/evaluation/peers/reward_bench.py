"""RewardBench's two: `eval-set.json`, the accuracy of each subset, and `eval-set-scores.json`, all pairs, as lists.

Their code names them eval-set/MODEL.json and eval-set-scores/MODEL.json.

Source: allenai/reward-bench, scripts/run_rm.py and scripts/run_generative.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.results.evaluation.benchmark import reward
from pipelines.results.evaluation.peer_format import GradedRow, JudgedRun, PeerFormat, json_bytes

ACCURACIES, SCORES = "eval-set.json", "eval-set-scores.json"


def about(run: JudgedRun) -> dict[str, Any]:
    """What both files say of the model. A judge has no template of its own there."""
    kind, template = ("Generative RM", None) if run.writes else ("Seq. Classifier", "tokenizer")
    return {"model": run.model, "model_type": kind, "chat_template": template}


def columns_of(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as a list of values for each column."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            columns[name].append(value)
    return columns


def _files(rows: Iterable[GradedRow], run: JudgedRun) -> Iterator[tuple[str, bytes]]:
    yield ACCURACIES, json_bytes(about(run) | run.subsets)
    yield SCORES, json_bytes(columns_of(_scored(row, run) for row in rows) | about(run))


def _scored(graded: GradedRow, run: JudgedRun) -> dict[str, Any]:
    row, item = graded
    chosen, rejected = reward(item, "chosen"), reward(item, "rejected")
    tied = 0.5 if run.writes else 0.0
    return {
        "id": row.get("id"),
        "prompt": row["prompt"],
        "subset": row["subset"],
        "text_chosen": row["chosen"],
        "text_rejected": row["rejected"],
        "results": 1.0 if chosen > rejected else tied if chosen == rejected else 0.0,
        "scores_chosen": chosen,
        "scores_rejected": rejected,
    }


PEER_FORMAT = PeerFormat("reward-bench", _files)
