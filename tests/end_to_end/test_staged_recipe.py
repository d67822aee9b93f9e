"""A verifier decides what it can, a judge what it couldn't, and pairs are made of that: one recipe."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.candidates import rows_in
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here
from tiny_models.dialects import judgements

CRITERIA = [{"name": "right", "text": "correctness"}]


def answers(count: int) -> list[dict[str, Any]]:
    """Right and wrong answers to questions, bare ones and sentences, with the right one beside them."""
    rows = []
    for judgement in judgements("criteria", 47, count, "held-out"):
        task = judgement.case.task
        for text in (task.answer, task.wrong[0], f"It is {task.answer}.", f"Sure! The answer is {task.wrong[0]}."):
            rows.append({"prompt": task.question, "response": text, "reference": task.answer, "criteria": CRITERIA})
    return list({(row["prompt"], row["response"]): row for row in rows}.values())


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("engine", ["fake", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_judge_decides_what_a_verifier_could_not_and_pairs_are_made(tmp_path: Path, engine: str) -> None:
    rows = answers(12)
    write(tmp_path / "rows.jsonl", lines(rows))
    folder = {name: str(tmp_path / name) for name in ("rows.jsonl", "verified", "decided", "open", "judged", "pairs")}
    recipe = {
        "score": {
            "inputs": folder["rows.jsonl"],
            "output": folder["verified"],
            "model": "exact-match",
            "verifier": {"answer_pattern": "^([0-9]+)$"},
            "prefix": "v_",
        },
        "filter": {
            "scored": folder["verified"],
            "output": folder["decided"],
            "where": "v_status = 'scored'",
            "rest": folder["open"],
        },
        "then": {
            "score": {
                "inputs": folder["open"],
                "output": folder["judged"],
                "model": "tiny-criteria",
                "family": "criteria",
                "criteria_column": "criteria",
                "engine": engine,
            },
            "pairs": {"scored": folder["judged"], "output": folder["pairs"], "fake_ok": True},
        },
    }
    file = write(tmp_path / "recipe.yaml", yaml.safe_dump(recipe).encode())
    done, again = run_here("run", file), run_here("run", file)
    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert "pairs: nothing to do" in again.stderr
    verified, judged = scored(tmp_path / "verified"), scored(tmp_path / "judged")
    bare = [row["response"].isdigit() for row in rows]
    assert [row["v_reason"] for row in verified] == [None if is_bare else "no_answer" for is_bare in bare]
    assert [row["v_reward"] for row in verified if row["v_reason"] is None] == [
        float(row["response"] == row["reference"]) for row in rows if row["response"].isdigit()
    ]
    assert [row["response"] for row in judged] == [
        row["response"] for row, is_bare in zip(rows, bare, strict=True) if not is_bare
    ]
    assert {row["status"] for row in judged} == {"scored"}
    pairs = rows_in(tmp_path / "pairs")
    assert pairs
    if engine == "vllm":
        right = [float(f" {row['reference']}." in row["response"]) for row in judged]
        agreeing = [row["reward"] == label for row, label in zip(judged, right, strict=True)]
        assert sum(agreeing) / len(agreeing) > 0.9
        assert sum(pair["chosen"][-1]["content"].startswith("It is") for pair in pairs) / len(pairs) > 0.9
