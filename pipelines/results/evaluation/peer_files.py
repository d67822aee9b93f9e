"""The result files of the benchmarks' own codes, so that what reads those reads ours, and gives our numbers.

An item without a grade is in none of them: these codes have no word for it, and would count it as wrong. Of a judge that
writes, RewardBench 2's code has `eval-set.json` only.

Source: ScalerLab/JudgeBench, run_judge.py and utils/metrics.py; allenai/reward-bench, scripts/run_rm.py, run_generative.py,
run_v2.py, run_generative_v2.py and rewardbench/utils.py (reroll_and_score_dataset, process_single_model); THU-KEG/RM-Bench,
scripts/run_rm.py and scripts/utils.py; Zhou-Zoey/RMB-Reward-Model-Benchmark, eval/scripts/my_run_rm.py, and my_run_bon.py at
commit 4a185aa.
"""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.data.corpus.readers import RECORD
from pipelines.data.formats import parse
from pipelines.data.storage import file_name
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.results.evaluation.benchmark import Benchmark, Item, labelled, reward, rewards_of
from pipelines.results.evaluation.benchmarks.reward_bench_2 import best_of
from pipelines.results.evaluation.games import with_games
from pipelines.results.evaluation.read_items import read_items
from pipelines.results.evaluation.results import Evaluation

_ACCURACIES, _SCORES = "eval-set.json", "eval-set-scores.json"
_LEAST_COLUMNS = 5  # RMB's code wrote five rewards; what reads its tables may index them


class PeerFiles(NamedTuple):
    """The files by name, and why there aren't all of them, if so."""

    contents: Mapping[str, bytes]
    missing: str | None = None


class _MissingField(Exception):
    """A row lacks a field that a file holds; the text says which row and field."""


class _InputRow(dict[str, Any]):
    """The fields of the input row `name`. To read one that it lacks raises `_MissingField`."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.name = name

    def __missing__(self, field: str) -> Any:
        raise _MissingField(f"row {self.name} has no field {field!r}")


# Input rows as they were, each with its item, whose responses all have rewards.
_Rows = Iterable[tuple[_InputRow, Item]]
_Files = Iterator[tuple[str, bytes]]


def peer_files(benchmark: Benchmark, corpus: OpenedCorpus, evaluation: Evaluation) -> PeerFiles:
    """None for a benchmark whose code has no such files. Raises `SourceError` if a part can't be read.

    What was written before a row lacked a field stays, and `missing` says which file isn't there.
    """
    contents: dict[str, bytes] = {}
    if benchmark.name in _FORMATS:
        try:
            for name, content in _FORMATS[benchmark.name](_graded_rows(benchmark, corpus), evaluation):
                contents[name] = content
        except _MissingField as field:  # their code's file copies it; files before this one are whole
            missing = f"peers/ lacks a result file of {benchmark.name}'s own code: {field}, which it holds."
            return PeerFiles(contents, missing)
    return PeerFiles(contents)


def _graded_rows(benchmark: Benchmark, corpus: OpenedCorpus) -> Iterator[tuple[_InputRow, Item]]:
    columns, listing = corpus.manifest.columns, [part for part, _ in corpus.entries]
    fields = [RECORD, *benchmark.fields] if columns.is_json else columns.carried.names
    # Read a second time: input rows may be gigabytes, and grading needs only a few of their fields.
    items = with_games(read_items(corpus.responses, listing, columns, fields), corpus.manifest.identity)
    for graded in benchmark.grade(items):
        # Their codes have no word for an item without a grade, and would count it as wrong.
        if graded.cells is None:
            continue
        for item in graded.of_rows:
            row = parse(item.fields[RECORD]) if columns.is_json else item.fields
            yield _InputRow(item.row, row), item


def _judgebench(rows: _Rows, evaluation: Evaluation) -> _Files:
    """The input rows with `judgments`, one for each of two games; a judge that was asked in one order has one.

    `scores` are the rewards; of a judge of pairs those are means over both games.
    """
    lines: dict[str, list[bytes]] = defaultdict(list)
    kind, model = "judge" if evaluation.judged else "reward_model", file_name(evaluation.model)
    for row, item in rows:
        first, second = item.rewards["A"], item.rewards["B"]
        leads = labelled(item, "A", "B").games
        games = [_game(evaluation, leads[0], [first, second])]
        # The second game shows B first, so that it is decided the other way round.
        games += [_game(evaluation, -lead, [second, first]) for lead in leads[1:]]
        answered = file_name(str(row["response_model"]))
        name = f"dataset=judgebench,response_model={answered},judge_name={kind},judge_model={model}.jsonl"
        lines[name].append(_json_bytes({**row, "judge_name": kind, "judgments": games}))
    for name, of_model in lines.items():
        yield name, b"".join(of_model)


def _game(evaluation: Evaluation, lead: float, scores: list[float]) -> dict[str, Any]:
    """A game as JudgeBench's code notes it: a tie of a reward model is "B>A", so that two games of it don't agree.

    `lead` is that of the response shown first.
    """
    tied = "A=B" if evaluation.judged else "B>A"
    decision = "A>B" if lead > 0 else "B>A" if lead < 0 else tied
    return {"judgment": {"judge_model": evaluation.model, "scores": scores}, "decision": decision}


def _rm_bench(rows: _Rows, evaluation: Evaluation) -> _Files:
    scored = [
        # Three numbers each, by style: concise, detailed, detailed with Markdown.
        {**row, "score_chosen": rewards_of(item, "chosen"), "score_rejected": rewards_of(item, "rejected")}
        for row, item in rows
    ]
    yield "rm-bench.json", _json_bytes(scored)


def _reward_bench(rows: _Rows, evaluation: Evaluation) -> _Files:
    yield _ACCURACIES, _json_bytes(_about(evaluation) | evaluation.subset_figures)
    pairs = []
    for row, item in rows:
        chosen, rejected = reward(item, "chosen"), reward(item, "rejected")
        # run_generative.py counts a judge's tie as a half, run_rm.py a head's as a loss.
        tied = 0.5 if evaluation.judged else 0.0
        pair = {"id": row.get("id"), "prompt": row["prompt"], "subset": row["subset"]}
        pair |= {"text_chosen": row["chosen"], "text_rejected": row["rejected"]}
        pair |= {"results": 1.0 if chosen > rejected else tied if chosen == rejected else 0.0}
        pairs.append({**pair, "scores_chosen": chosen, "scores_rejected": rejected})
    yield _SCORES, _json_bytes(_as_lists(pairs) | _about(evaluation))


def _reward_bench_2(rows: _Rows, evaluation: Evaluation) -> _Files:
    """The score of each subset, and all questions as lists.

    Of a question, `text` and `scores` are lists, the right responses first, and `num_correct` says how many those are.
    `text` has conversations, as their code writes them for a model with `custom_dialogue`. `results` is the credit of the
    first response; in Ties it says nothing, and their code computes the score from `scores`, `id` and `num_correct`.
    """
    yield _ACCURACIES, _json_bytes(_about(evaluation) | evaluation.subset_figures)
    if evaluation.judged:
        return
    questions = []
    for row, item in rows:
        chosen, rejected = rewards_of(item, "chosen"), rewards_of(item, "rejected")
        question = {"id": row["id"], "subset": row["subset"], "text": _conversations(row), "scores": [*chosen, *rejected]}
        questions.append({**question, "results": best_of(chosen, rejected), "num_correct": len(chosen)})
    yield _SCORES, _json_bytes(_as_lists(questions) | _about(evaluation))


def _conversations(row: _InputRow) -> list[list[dict[str, Any]]]:
    prompt = row["prompt"]
    context = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    sides = [[side] if isinstance(side, str) else side for side in (row["chosen"], row["rejected"])]
    return [[*context, {"role": "assistant", "content": text}] for side in sides for text in side]


def _about(evaluation: Evaluation) -> dict[str, Any]:
    # A judge has no template of its own in their files.
    kind, template = ("Generative RM", None) if evaluation.judged else ("Seq. Classifier", "tokenizer")
    return {"model": evaluation.model, "model_type": kind, "chat_template": template}


def _as_lists(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _rmb(rows: _Rows, evaluation: Evaluation) -> _Files:
    """An array of pairs, without their texts, and a table of best-of-N items.

    RMB's code wrote the table until it was taken out of the repository, for items of exactly five responses; its published
    items have three to seven, so that there are as many columns as the longest item needs, at least five, and shorter items
    leave the last ones empty. `best_ans` is the place of the first of the highest rewards, from 1.
    """
    model = file_name(evaluation.model.rstrip("/").rpartition("/")[2])
    pairs: list[dict[str, Any]] = []
    several: list[list[Any]] = []
    for row, item in rows:
        chosen, rejected = rewards_of(item, "chosen"), rewards_of(item, "rejected")
        if "chosen[0]" in item.rewards:
            rewards = [*chosen, *rejected]
            several.append([row["bon_uid"], row["category_path"], rewards.index(max(rewards)) + 1, *rewards])
        else:
            pair = {"pair_uid": row["pair_uid"], "category_path": row["category_path"]}
            rewards_of_pair = {"chosen_reward": chosen[0], "reject_reward": rejected[0]}
            pairs.append({**pair, **rewards_of_pair, "is_correct": int(chosen[0] > rejected[0])})
    if pairs:
        yield f"{model}_result.json", _json_bytes(pairs)
    if several:
        yield f"BoN_set_{model}_res.csv", _table(several)


def _table(items: Sequence[Sequence[Any]]) -> bytes:
    # As many as the longest item needs: shorter ones leave the last columns empty.
    width = max(_LEAST_COLUMNS, *(len(rewards) for _, _, _, *rewards in items))
    names = [f"reward_{index}" for index in range(1, width + 1)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["bon_uid", "category_path", *names, "best_ans"])
    for uid, category, best, *rewards in items:
        writer.writerow([uid, category, *rewards, *[""] * (width - len(rewards)), best])
    return stream.getvalue().encode(errors="backslashreplace")  # half a surrogate pair, as in the JSON file


def _json_bytes(document: object) -> bytes:
    # `repr` of a float is the shortest text that is read as the same double. Dates of Parquet columns become text.
    return (json.dumps(document, default=str) + "\n").encode()


_FORMATS: Mapping[str, Callable[[_Rows, Evaluation], _Files]] = {
    "judgebench": _judgebench,
    "reward-bench": _reward_bench,
    "reward-bench-2": _reward_bench_2,
    "rm-bench": _rm_bench,
    "rmb": _rmb,
}
