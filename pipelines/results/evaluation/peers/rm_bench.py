"""RM-Bench's array, `rm-bench.json`: the input rows, with `score_chosen` and `score_rejected`, three numbers each.

Source: THU-KEG/RM-Bench, scripts/run_rm.py and scripts/utils.py, which computes its accuracies from this array.
"""

from collections.abc import Iterable, Iterator

from pipelines.results.evaluation.benchmark import rewards_of
from pipelines.results.evaluation.peer_format import GradedRow, JudgedRun, PeerFormat, json_bytes


def _files(rows: Iterable[GradedRow], run: JudgedRun) -> Iterator[tuple[str, bytes]]:
    scored = [
        {**row, "score_chosen": rewards_of(item, "chosen"), "score_rejected": rewards_of(item, "rejected")}
        for row, item in rows
    ]
    yield "rm-bench.json", json_bytes(scored)


PEER_FORMAT = PeerFormat("rm-bench", _files)
