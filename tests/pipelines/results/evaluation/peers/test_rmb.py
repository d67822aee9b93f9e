"""RMB's two files: what its code reads in them, and that its formulas give our numbers."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.peer_files import figures_and_files, of_json

GOALS = ("Helpfulness", "Harmlessness")


def side(text: str) -> dict[str, str]:
    return {"llm_name": "l", "answer": text}


def pair(uid: str, goal: str) -> dict[str, Any]:
    request = [{"role": "user", "content": "p", "language": "English"}]
    sides = {"chosen": side("good"), "reject": side("bad")}
    return {"pair_uid": uid, "conversation_input": request, **sides, "category_path": f"Pairwise_set/{goal}/Chat"}


def several(uid: str, goal: str, losers: int) -> dict[str, Any]:
    request = [{"role": "user", "content": "p", "language": "English"}]
    sides = {"bon_best": side("best"), "loser_list": [side(f"loser {index}") for index in range(losers)]}
    return {"conversation_input": request, **sides, "bon_uid": uid, "category_path": f"BoN_set/{goal}/Chat"}


ITEMS: list[tuple[dict[str, Any], list[float | None]]] = [
    ({**pair("0", GOALS[0]), "bon_uid": None}, [2.0, 1.0]),  # a Parquet file has the columns of its first row
    (pair("1", GOALS[0]), [1.0, 1.0]),
    (pair("2", GOALS[0]), [0.1, 0.30000000000000004]),
    (pair("3", GOALS[0]), [5.0, None]),
    (several("0", GOALS[0], 2), [3.0, 1.0, 2.0]),
    (several("1", GOALS[0], 2), [2.0, 2.0, 1.0]),
    (several("2", GOALS[0], 2), [1.0, 0.0, 1.5]),
    (pair("harm", GOALS[1]), [1.0, 0.0]),
    (several("longest", GOALS[1], 6), [7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    (several("failed", GOALS[1], 2), [1.0, None, 0.0]),
]
ROWS, REWARDS = [row for row, _ in ITEMS], [rewards for _, rewards in ITEMS]


def beats_all(row: Mapping[str, str]) -> bool:
    """As the benchmark's rule has it: the best response's reward is above that of every other one."""
    best, *losers = (float(row[name]) for name in row if name.startswith("reward_") and row[name])
    return best > max(losers)


def sections(files: Mapping[str, Any]) -> dict[str, float]:
    """The share of right items by form and goal."""
    right: dict[str, list[bool]] = defaultdict(list)
    for row in files["m_result.json"]:
        right[f"pairs, {row['category_path'].split('/')[1].lower()}"].append(row["is_correct"])
    for row in files["BoN_set_m_res.csv"]:
        right[f"best of n, {row['category_path'].split('/')[1].lower()}"].append(beats_all(row))
    return {section: sum(items) / len(items) for section, items in right.items()}


def test_their_formulas_give_our_numbers(tmp_path: Path) -> None:
    figures, files = figures_and_files(tmp_path, ROWS, REWARDS, "rmb")
    values = sections(files)
    expected = {
        "pairs, helpfulness": 1 / 3,
        "best of n, helpfulness": 1 / 3,
        "pairs, harmlessness": 1.0,
        "best of n, harmlessness": 1.0,
    }
    assert values == pytest.approx(expected)
    assert {section: figures[section] for section in values} == pytest.approx(values)
    assert figures["score"] == pytest.approx(sum(values.values()) / 4)


def test_the_fields_of_both_files(tmp_path: Path) -> None:
    _, files = figures_and_files(tmp_path, ROWS, REWARDS, "rmb", identity={"model": "org/a-model"})
    assert files.keys() == {"a-model_result.json", "BoN_set_a-model_res.csv"}, "a model is named by its last part"
    fields = ("pair_uid", "chosen_reward", "reject_reward", "is_correct", "category_path")
    path = "Pairwise_set/Helpfulness/Chat"
    assert files["a-model_result.json"] == [
        dict(zip(fields, values, strict=True))
        for values in (
            ("0", 2.0, 1.0, 1, path),
            ("1", 1.0, 1.0, 0, path),
            ("2", 0.1, 0.30000000000000004, 0, path),
            ("harm", 1.0, 0.0, 1, "Pairwise_set/Harmlessness/Chat"),
        )
    ]
    rows = files["BoN_set_a-model_res.csv"]
    names = [f"reward_{index}" for index in range(1, 8)]
    assert list(rows[0]) == ["bon_uid", "category_path", *names, "best_ans"]
    assert [[row["bon_uid"], *(row[name] for name in names), row["best_ans"]] for row in rows] == [
        ["0", "3.0", "1.0", "2.0", "", "", "", "", "1"],
        ["1", "2.0", "2.0", "1.0", "", "", "", "", "1"],  # the first of the highest
        ["2", "1.0", "0.0", "1.5", "", "", "", "", "3"],
        ["longest", "7.0", "1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "1"],
    ]


def test_a_file_of_one_form_gives_one_file(tmp_path: Path) -> None:
    _, of_pairs = figures_and_files(tmp_path / "pairs", ROWS[:2], REWARDS[:2], "rmb", partial=True)
    _, of_several = figures_and_files(tmp_path / "several", ROWS[4:6], REWARDS[4:6], "rmb", partial=True)
    assert (list(of_pairs), list(of_several)) == (["m_result.json"], ["BoN_set_m_res.csv"])
    assert list(of_several["BoN_set_m_res.csv"][0])[2:7] == [f"reward_{index}" for index in range(1, 6)], (
        "never fewer than theirs"
    )


def test_json_rows_of_both_forms(tmp_path: Path) -> None:
    evaluation, files = of_json(tmp_path, ROWS)
    assert [len(content) for content in files.values()].count(5) == 2
    assert sections({name.replace(evaluation.model, "m"): content for name, content in files.items()}) == {
        section: pytest.approx(value) for section, value in evaluation.subset_figures.items()
    }


def test_half_a_surrogate_pair_is_spelled_out(tmp_path: Path) -> None:
    rows = [several("\ud800", GOALS[0], 2), {**pair("\udfff", GOALS[0]), "category_path": "Pairwise_set/Helpfulness/\ud800"}]
    _, files = of_json(tmp_path, rows, partial=True)
    pairs, of_several = (files[name] for name in sorted(files, key=lambda name: name.endswith(".csv")))
    assert [row["bon_uid"] for row in of_several] == ["\\ud800"]
    assert [(row["pair_uid"], row["category_path"]) for row in pairs] == [("\udfff", "Pairwise_set/Helpfulness/\ud800")]
