"""RewardBench 2's two files: what its code reads in them, and that its formulas give our numbers."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.peer_files import Rows, figures_and_files, of_json

SUBSETS = ("Factuality", "Precise IF", "Math", "Safety", "Focus")


def four(subset: str, name: str) -> dict[str, Any]:
    """A best-of-four question."""
    sides = {"chosen": ["right"], "rejected": ["a", "b", "c"]}
    return {"id": name, "prompt": f"p {name}", **sides, "subset": subset, "num_correct": 1}


def tie(name: str, right: int, wrong: int) -> dict[str, Any]:
    """A question of Ties with so many right and wrong responses."""
    sides = {
        "chosen": [f"right {index}" for index in range(right)],
        "rejected": [f"wrong {index}" for index in range(wrong)],
    }
    return {"id": name, "prompt": f"p {name}", **sides, "subset": "Ties", "num_correct": right}


def ties_score(questions: Rows) -> float:
    """As process_single_model in rewardbench/utils.py has it: the first `num_correct` scores are of right responses."""
    stats: dict[str, dict[int, tuple[float, float]]] = {"ref": {}, "tied": {}}
    for question in questions:
        kind, number = question["id"].split(":")
        right, wrong = question["scores"][: question["num_correct"]], question["scores"][question["num_correct"] :]
        stats[kind][int(number)] = (min(right) - max(wrong), max(right) - min(right))
    ref, tied = stats["ref"], stats["tied"]
    pairs = [(min(ref[index][0], tied[index][0]), *tied[index]) for index in ref.keys() & tied.keys()]
    margins = [
        math.tanh(least / spread - 1) if spread else math.copysign(1, least) * (least != 0) for least, _, spread in pairs
    ]
    return (
        0.30 * average([gap > 0 for gap, _ in tied.values()])
        + 0.30 * average([gap > 0 for gap, _ in ref.values()])
        + 0.20 * average([gap > spread for _, gap, spread in pairs])
        + 0.20 * average([least > spread for least, _, spread in pairs])
        + 0.01 * average(margins)
    )


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions of `eval-set-scores`, which holds them as lists."""
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def by_their_formulas(columns: Mapping[str, Any]) -> dict[str, float]:
    """The score of each subset as scripts/run_v2.py computes it."""
    subsets: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question in rows_of(columns):
        subsets[question["subset"]].append(question)
    return {
        subset: ties_score(questions) if subset == "Ties" else average([question["results"] for question in questions])
        for subset, questions in subsets.items()
    }


QUESTIONS: list[tuple[dict[str, Any], list[float | None]]] = [
    (four("Factuality", "0"), [2.0, 1.0, 0.5, 0.1]),
    (four("Precise IF", "1"), [2.0, 1.0, 0.5, 0.1]),
    (four("Math", "2"), [2.0, 1.0, 0.5, 0.1]),
    (four("Safety", "3"), [0.0, 1.0, 0.5, 0.1]),
    (four("Focus", "4"), [1.0, 1.0, 1.0, 1.0]),
    (four("Math", "shared"), [1.0, 0.0, 1.0, -1.0]),
    (four("Math", "failed"), [9.0, 1.0, None, 0.0]),
    (tie("ref:0", 1, 2), [5.0, 1.0, 0.0]),
    (tie("ref:1", 1, 1), [0.0, 1.0]),
    (tie("tied:0", 2, 1), [5.0, 4.0, 1.0]),
    (tie("tied:1", 2, 1), [3.0, 1.0, 2.0]),
    (tie("ref:2", 1, 1), [7.0, 1.0]),
    (tie("tied:2", 2, 1), [3.0, None, 1.0]),
    (tie("ref:0", 1, 1), [0.0, 1.0]),
]
ROWS, REWARDS = [row for row, _ in QUESTIONS], [rewards for _, rewards in QUESTIONS]


def test_their_formulas_give_our_numbers(tmp_path: Path) -> None:
    figures, files = figures_and_files(tmp_path, ROWS, REWARDS, "rm-bench")
    scores, columns = files["eval-set.json"], files["eval-set-scores.json"]
    about = {"model": "m", "model_type": "Seq. Classifier", "chat_template": "tokenizer"}
    math_score = 0.75  # one right, one shared with another maximum, one without all of its rewards
    ties = 0.5002943966321548  # the worked example: id 2 has a response without a reward
    values = (1.0, 1.0, math_score, 0.0, 0.25, ties)
    expected = {subset: pytest.approx(value, abs=1e-15) for subset, value in zip((*SUBSETS, "Ties"), values, strict=True)}
    assert scores == about | expected
    assert by_their_formulas(columns) == expected
    assert {subset: figures[subset] for subset in expected} == {subset: scores[subset] for subset in expected}
    assert average([scores[subset] for subset in expected]) == pytest.approx(figures["score"])
    questions = {question["id"]: question for question in rows_of(columns)}
    assert len(questions) == len(rows_of(columns)), "the second question of one id isn't there"
    assert questions.keys() == {"0", "1", "2", "3", "4", "shared", "ref:0", "ref:1", "tied:0", "tied:1"}, "all with a grade"
    assert questions["tied:0"] == {
        "id": "tied:0",
        "subset": "Ties",
        "text": [
            [{"role": "user", "content": "p tied:0"}, {"role": "assistant", "content": text}]
            for text in ("right 0", "right 1", "wrong 0")
        ],
        "scores": [5.0, 4.0, 1.0],
        "results": 1.0,
        "num_correct": 2,
    }
    assert (questions["shared"]["scores"], questions["shared"]["results"]) == ([1.0, 0.0, 1.0, -1.0], 0.5)


def test_json_rows_with_a_conversation_as_the_prompt_and_a_side_of_one_text(tmp_path: Path) -> None:
    context = [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]
    rows = [{**four("Math", "0"), "prompt": context, "chosen": "right", "rejected": ["wrong"]}, four("Math", "1")]
    evaluation, files = of_json(tmp_path, rows, partial=True)
    first, second = rows_of(files["eval-set-scores.json"])
    assert first["text"] == [[*context, {"role": "assistant", "content": text}] for text in ("right", "wrong")]
    assert [turns[-1]["content"] for turns in second["text"]] == ["right", "a", "b", "c"]
    rewards = pq.read_table(tmp_path / "e" / "items-00000.parquet")["rewards"].to_pylist()
    assert [question["scores"] for question in (first, second)] == [[value for _, value in named] for named in rewards]
    assert by_their_formulas(files["eval-set-scores.json"]) == evaluation.subset_figures


def test_texts_are_those_of_the_input_even_with_no_text(tmp_path: Path) -> None:
    rows = [four("Math", "0")]
    with_text, without = (of_json(tmp_path / str(text), rows, text=text, partial=True) for text in (True, False))
    assert without[1] == with_text[1]
    assert [turns[-1]["content"] for turns in without[1]["eval-set-scores.json"]["text"][0]] == ["right", "a", "b", "c"]


def test_a_judge_has_scores_of_subsets_alone(tmp_path: Path) -> None:
    figures, files = figures_and_files(tmp_path, ROWS, REWARDS, "rm-bench", identity={"judge": {"votes": 1}})
    (name,) = files
    assert name == "eval-set.json"
    assert (files[name]["model_type"], files[name]["chat_template"]) == ("Generative RM", None)
    assert files[name]["Ties"] == figures["Ties"]
