"""JudgeBench's lines, `dataset=judgebench,...jsonl`: the input rows, with `judgments`, one for each of two games.

A judge that was asked in one order has one game. `scores` are the rewards; of a judge of pairs those are means over both.

Source: ScalerLab/JudgeBench, run_judge.py and utils/metrics.py, which reads them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.data.storage import file_name
from pipelines.results.evaluation.benchmark import labelled
from pipelines.results.evaluation.peer_format import GradedRow, JudgedRun, PeerFormat, json_bytes


def _files(rows: Iterable[GradedRow], run: JudgedRun) -> Iterator[tuple[str, bytes]]:
    lines: dict[str, list[bytes]] = defaultdict(list)
    kind, model = "judge" if run.writes else "reward_model", file_name(run.model)
    for row, item in rows:
        first, second = item.rewards["A"], item.rewards["B"]
        leads, scores = labelled(item, "A", "B").games, ([first, second], [second, first])
        # The second game shows B first, so that it is decided the other way round.
        games = [
            _game(run, lead, shown) for lead, shown in zip((leads[0], *(-lead for lead in leads[1:])), scores, strict=False)
        ]
        answered = file_name(str(row["response_model"]))
        name = f"dataset=judgebench,response_model={answered},judge_name={kind},judge_model={model}.jsonl"
        lines[name].append(json_bytes({**row, "judge_name": kind, "judgments": games}))
    for name, of_model in lines.items():
        yield name, b"".join(of_model)


def _game(run: JudgedRun, lead: float, scores: list[float]) -> dict[str, Any]:
    """A game as JudgeBench's code notes it: a tie of a reward model is "B>A", so that two games of it don't agree.

    `lead` is that of the response shown first.
    """
    tied = "A=B" if run.writes else "B>A"
    decision = "A>B" if lead > 0 else "B>A" if lead < 0 else tied
    return {"judgment": {"judge_model": run.model, "scores": scores}, "decision": decision}


PEER_FORMAT = PeerFormat("judgebench", _files)
