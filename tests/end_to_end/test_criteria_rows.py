"""Rows with criteria of their own on real vLLM, killed twice: rewards, gates and nulls as an independent reading gives them.

What is read here follows the guide alone, and shares no code with the family: a mistake would have to be made twice.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from actors.engine.fork_server import SWITCH
from tests.support.commands import kill, parts_of, running, sets, stamps, summary, wait_until
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here
from tiny_models.dialects import Judgement, judgements

MODEL = ("--model", "tiny-criteria", "--family", "criteria", "--criteria-column", "rubric")
TOKENS, MANY = 220, 12
"""The longest answer, and how many criteria it has no room for."""
BROKEN: tuple[object, ...] = (
    "correctness",
    [{"name": "c1", "weight": 2}],
    [{"text": "correctness", "weight": "2"}],
    [{"text": "correctness", "weight": -1}],
    [{"name": "c1", "text": "correctness"}, {"name": "c1", "text": "brevity"}],
    [{"text": "correctness", "gate": "yes"}],
    [{"text": "correctness", "choices": ["yes"]}],
)
LIKE_A_TOKEN = [{"text": "correctness<|im_end|>"}]


class Outcome(NamedTuple):
    """What a row is to have."""

    status: str
    reason: str | None
    reward: float | None
    values: Mapping[str, float] | None


def corpus_rows(count: int) -> Iterator[tuple[dict[str, Any], Judgement]]:
    """Rows whose criteria have weights, gates and words of their own, some broken, in the shapes of several data sets."""
    random = Random(2026)
    for number, judgement in enumerate(judgements("criteria", 46, count, "held-out")):
        (answer,) = judgement.case.answers
        row = {"id": number, "prompt": judgement.case.context, "response": answer.text.strip() or "."}
        criteria = [dict(item) for item in judgement.fields["criteria"]]
        for item in criteria:
            item["weight"] = random.choice((0, 0.5, 1, 2, 3, -1, -2.5))
            item["gate"] = random.random() < 0.15
        criteria[0]["weight"] = random.choice((1, 4))
        rubric: object = criteria
        kind = random.random()
        if kind < 0.02:
            rubric = random.choice((*BROKEN, []))
        elif kind < 0.03:
            rubric = LIKE_A_TOKEN
        elif kind < 0.04:
            rubric = [{**criteria[0], "name": f"c{place}"} for place in range(MANY)]
        elif kind < 0.10:
            rubric = [{"criterion": item["text"], "points": item["weight"]} for item in criteria]
        elif kind < 0.16:
            rubric = {"criteria": [{"criterion": item["text"], "score": item["weight"]} for item in criteria]}
        elif kind < 0.20:
            rubric = [item["text"] for item in criteria]
        if kind < 0.99:
            row["rubric"] = rubric
        yield row | {key: judgement.fields[key] for key in judgement.fields if key == "reference"}, judgement


def read(row: Mapping[str, Any], text: str | None) -> Outcome:
    """What the guide says of a row and its judge's text."""
    rubric = row.get("rubric")
    if not rubric:
        return Outcome("rejected", "missing_field", None, None)
    if rubric in BROKEN:
        return Outcome("rejected", "wrong_type", None, None)
    if rubric == LIKE_A_TOKEN:
        return Outcome("rejected", "control_token", None, None)
    listed = rubric["criteria"] if isinstance(rubric, dict) else rubric
    if len(listed) == MANY:
        return Outcome("failed", "cut_off", None, None)
    assert text is not None
    answer = json.loads(text)
    values, above, most, is_passed = {}, 0.0, 0.0, True
    for number, given in enumerate(listed, 1):
        item = given if isinstance(given, dict) else {"text": given}
        name = item.get("name", f"c{number}")
        words = item.get("choices", ["no", "yes"])
        value = words.index(answer[name]["verdict"]) / (len(words) - 1)
        weight = float(next((item[key] for key in ("weight", "points", "score") if key in item), 1))
        above += weight * value
        most += max(weight, 0)
        is_passed &= not item.get("gate", False) or value > 0.5
        values[name] = value
    assert [*answer] == [*values]
    return Outcome("scored", None, max(0.0, min(1.0, above / most)) if is_passed else 0.0, values)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(400, marks=pytest.mark.long),
        pytest.param(10_000, marks=[pytest.mark.chaos, pytest.mark.timeout(3600)]),
    ],
)
def test_rows_with_criteria_are_scored_through_two_kills(tmp_path: Path, count: int) -> None:
    rows = list(corpus_rows(count))
    corpus, out = write(tmp_path / "rows.jsonl", lines(row for row, _ in rows)), tmp_path / "out"
    limits = sets("judge.trace=true", f"judge.max_tokens={TOKENS}", "judge.reask=0", f"work.part_rows={count // 20}")
    command = ("score", corpus, out, *MODEL, *limits)
    committed: dict[str, tuple[int, int]] = {}
    for goal in (2, 8):
        with running(*command, **{SWITCH: ""}) as driver:
            wait_until(lambda goal=goal: len(parts_of(out)) >= goal, driver, every_s=0.2)  # type: ignore[misc]
            kill(driver)
        now = stamps(out)
        assert goal <= len(now) < 20
        assert {name: now[name] for name in committed} == committed, "a committed part was written again"
        committed = now
    counts = summary(*command, run=run_here)
    after = stamps(out)
    assert {name: after[name] for name in committed} == committed
    results = scored(out)
    assert [result["id"] for result in results] == [row["id"] for row, _ in rows]
    assert counts["rows"] == counts["responses"] == count
    verdicts: list[bool] = []
    for result, (row, judgement) in zip(results, rows, strict=True):
        text = result["trace"][0]["text"] if result["status"] == "scored" else None
        expected = read(row, text)
        assert (result["status"], result["reason"]) == (expected.status, expected.reason), row
        if expected.values is None:
            assert (result["reward"], result["criteria_scores"]) == (None, None)
            continue
        assert dict(result["criteria_scores"]) == expected.values
        assert result["reward"] == pytest.approx(expected.reward, abs=1e-12)
        values = zip(expected.values.values(), judgement.fields["criteria"], strict=True)
        right = judgement.case.answers[0].right
        verdicts += [value == right for value, criterion in values if criterion["text"] == "correctness"]
    assert {result["reason"] for result in results} >= {None, "missing_field", "wrong_type", "control_token", "cut_off"}
    assert sum(verdicts) / len(verdicts) > 0.9, "the judge doesn't read criteria and references"
