"""The result files of the benchmarks' own codes, so that what reads those reads ours, and gives our numbers.

rm-bench      `rm-bench.json`: the input array, with `score_chosen` and `score_rejected`, three numbers each
judgebench    `dataset=judgebench,response_model=...jsonl`: the input rows, with `judgments`, one for each of two games
reward-bench  `eval-set.json`: the accuracy of each subset; `eval-set-scores.json`: scores and results of all pairs, as lists

An item without a grade is in none of them: these codes have no word for it, and would count it as wrong.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.corpus.readers import RECORD
from pipelines.evaluation.benchmark import Benchmark, Item, reward, rewards_of
from pipelines.evaluation.read_items import read_items
from pipelines.formats import parse
from pipelines.scored_corpus.scored_folder import OpenedCorpus

Row = Mapping[str, Any]


@dataclass(frozen=True)
class JudgingModel:
    """Who judged: the model's name, and whether it writes its judgements, or is a reward head."""

    model: str
    writes: bool


def peer_files(benchmark: Benchmark, corpus: OpenedCorpus, judge: JudgingModel) -> Mapping[str, bytes]:
    """The files by name; none for a benchmark without a form of its own. Raises `SourceError` if a part can't be read."""
    write = _WRITERS.get(benchmark.name)
    return write(_graded_rows(benchmark, corpus), judge) if write else {}


def _graded_rows(benchmark: Benchmark, corpus: OpenedCorpus) -> Iterator[tuple[Row, Item]]:
    """Each input row as it was, with its rewards, if it has a grade."""
    columns, listing = corpus.manifest.columns, [part for part, _ in corpus.entries]
    fields = [RECORD, *benchmark.fields] if columns.is_json else columns.carried.names
    for item in read_items(corpus.responses, listing, columns, fields):
        (graded,) = benchmark.grade([item])
        if graded.cells is not None:
            yield (parse(item.fields[RECORD]) if columns.is_json else item.fields), item


def _rm_bench(rows: Iterable[tuple[Row, Item]], judge: JudgingModel) -> dict[str, bytes]:
    scored = [
        {**row, "score_chosen": rewards_of(item, "chosen"), "score_rejected": rewards_of(item, "rejected")}
        for row, item in rows
    ]
    return {"rm-bench.json": _json(scored)}


def _judgebench(rows: Iterable[tuple[Row, Item]], judge: JudgingModel) -> dict[str, bytes]:
    files: dict[str, list[bytes]] = defaultdict(list)
    kind, model = "judge" if judge.writes else "reward_model", judge.model.replace("/", "_")
    for row, item in rows:
        first, second = reward(item, "A"), reward(item, "B")
        games = [_game(judge, first, second), _game(judge, second, first)]
        name = f"dataset=judgebench,response_model={row['response_model']},judge_name={kind},judge_model={model}.jsonl"
        files[name].append(_json({**row, "judge_name": kind, "judgments": games}))
    return {name: b"".join(lines) for name, lines in files.items()}


def _game(judge: JudgingModel, first: float, second: float) -> dict[str, Any]:
    """A game as JudgeBench's code notes it: a tie of a reward model is "B>A", so that two games of it don't agree."""
    tied = "A=B" if judge.writes else "B>A"
    decision = "A>B" if first > second else "B>A" if first < second else tied
    return {"judgment": {"judge_model": judge.model, "scores": [first, second]}, "decision": decision}


def _reward_bench(rows: Iterable[tuple[Row, Item]], judge: JudgingModel) -> dict[str, bytes]:
    columns: dict[str, list[Any]] = defaultdict(list)
    results: dict[str, list[float]] = defaultdict(list)
    for row, item in rows:
        chosen, rejected = reward(item, "chosen"), reward(item, "rejected")
        tied = 0.5 if judge.writes else 0.0
        result = 1.0 if chosen > rejected else tied if chosen == rejected else 0.0
        results[str(row["subset"])].append(result)
        scored = {"text_chosen": row["chosen"], "text_rejected": row["rejected"], "results": result}
        scored |= {"scores_chosen": chosen, "scores_rejected": rejected}
        for name, value in {"id": row.get("id"), "prompt": row["prompt"], "subset": row["subset"], **scored}.items():
            columns[name].append(value)
    about = {
        "model": judge.model,
        "model_type": "Generative RM" if judge.writes else "Seq. Classifier",
        "chat_template": "tokenizer",
    }
    accuracies = {subset: sum(values) / len(values) for subset, values in sorted(results.items())}
    return {"eval-set.json": _json({**about, **accuracies}), "eval-set-scores.json": _json({**columns, **about})}


def _json(document: object) -> bytes:
    return (json.dumps(document, default=str) + "\n").encode()


_WRITERS: Mapping[str, Callable[[Iterable[tuple[Row, Item]], JudgingModel], dict[str, bytes]]] = {
    "rm-bench": _rm_bench,
    "judgebench": _judgebench,
    "reward-bench": _reward_bench,
}
