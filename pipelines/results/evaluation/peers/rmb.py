"""RMB's two: `MODEL_result.json` with the rewards of pairs, and `BoN_set_MODEL_res.csv` with those of best-of-N items.

A pair has its `pair_uid` and `category_path`, `chosen_reward`, `reject_reward` and `is_correct`, 1 or 0. RMB's code writes
this array, without the texts.

A best-of-N item has its `bon_uid` and `category_path`, `reward_1`, `reward_2`, ... and `best_ans`, the place of the first of
the highest rewards, from 1. `reward_1` is the best response's, the others are in the row's order. RMB's code wrote this file
until it was taken out of the repository, for items of exactly five responses; its published items have three to seven, so
that there are as many columns as the longest item needs, at least five, and shorter items leave the last ones empty.

Source: Zhou-Zoey/RMB-Reward-Model-Benchmark, eval/scripts/my_run_rm.py, and my_run_bon.py at commit 4a185aa.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipelines.data.storage import file_name
from pipelines.results.evaluation.benchmark import rewards_of
from pipelines.results.evaluation.peer_format import GradedRow, InputRow, JudgedRun, PeerFormat, json_bytes

_LEAST_COLUMNS = 5


def _files(rows: Iterable[GradedRow], run: JudgedRun) -> Iterator[tuple[str, bytes]]:
    model = file_name(run.model.rstrip("/").rpartition("/")[2])
    pairs: list[dict[str, Any]] = []
    several: list[list[Any]] = []
    for row, item in rows:
        chosen, rejected = rewards_of(item, "chosen"), rewards_of(item, "rejected")
        if "chosen[0]" in item.rewards:
            several.append(_several(row, [*chosen, *rejected]))
        else:
            pairs.append(_pair(row, chosen[0], rejected[0]))
    if pairs:
        yield f"{model}_result.json", json_bytes(pairs)
    if several:
        yield f"BoN_set_{model}_res.csv", _table(several)


def _pair(row: InputRow, chosen: float, rejected: float) -> dict[str, Any]:
    rewards = {"chosen_reward": chosen, "reject_reward": rejected, "is_correct": int(chosen > rejected)}
    return {"pair_uid": row["pair_uid"], "category_path": row["category_path"], **rewards}


def _several(row: InputRow, rewards: Sequence[float]) -> list[Any]:
    return [row["bon_uid"], row["category_path"], rewards.index(max(rewards)) + 1, *rewards]


def _table(items: Sequence[Sequence[Any]]) -> bytes:
    width = max(_LEAST_COLUMNS, *(len(rewards) for _, _, _, *rewards in items))
    names = [f"reward_{at}" for at in range(1, width + 1)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["bon_uid", "category_path", *names, "best_ans"])
    for uid, category, best, *rewards in items:
        writer.writerow([uid, category, *rewards, *[""] * (width - len(rewards)), best])
    return stream.getvalue().encode(errors="backslashreplace")  # half a surrogate pair, as in the JSON file


PEER_FORMAT = PeerFormat("rmb", _files)
