"""JudgeBench's lines, `dataset=judgebench,...jsonl`: the input rows, with `judgments`, one for each of two games.

Source: ScalerLab/JudgeBench, run_judge.py and utils/metrics.py, which reads them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.evaluation.benchmark import reward
from pipelines.evaluation.peer_format import GradedRow, JudgedRun, PeerFormat, json_bytes


def _files(rows: Iterable[GradedRow], run: JudgedRun) -> Iterator[tuple[str, bytes]]:
    lines: dict[str, list[bytes]] = defaultdict(list)
    kind, model = "judge" if run.writes else "reward_model", run.model.replace("/", "_")
    for row, item in rows:
        first, second = reward(item, "A"), reward(item, "B")
        games = [_game(run, first, second), _game(run, second, first)]
        name = f"dataset=judgebench,response_model={row['response_model']},judge_name={kind},judge_model={model}.jsonl"
        lines[name].append(json_bytes({**row, "judge_name": kind, "judgments": games}))
    for name, of_model in lines.items():
        yield name, b"".join(of_model)


def _game(run: JudgedRun, first: float, second: float) -> dict[str, Any]:
    """A game as JudgeBench's code notes it: a tie of a reward model is "B>A", so that two games of it don't agree."""
    tied = "A=B" if run.writes else "B>A"
    decision = "A>B" if first > second else "B>A" if first < second else tied
    return {"judgment": {"judge_model": run.model, "scores": [first, second]}, "decision": decision}


PEER_FORMAT = PeerFormat("judgebench", _files)
