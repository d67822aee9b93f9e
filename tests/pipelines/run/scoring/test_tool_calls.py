"""Rows with tool calls from the file to the export, and the same rewards from the endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.errors import SourceError
from actors.records import Reason
from actors.settings.replica import EngineSettings, JudgeSettings
from pipelines.run.scoring.score_corpus import score
from tests.support.candidates import rows_in
from tests.support.corpora import lines, scored, settings, write
from tests.support.endpoints import application, post, scorer
from tests.support.exports import export, pair
from tests.support.parsed_rows import chat, reply, user

pytestmark = pytest.mark.usefixtures("local_ray")

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def call(**arguments: int) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "add", "arguments": json.dumps(arguments)}}


SUM, WRONG = reply(None, tool_calls=[call(a=3, b=4)]), reply("", tool_calls=[call(a=3, b=5)])
MODEL = "tiny-tools"
TURNS = [user("What is 3 + 4?"), SUM, {"role": "tool", "tool_call_id": "c1", "content": "7"}, reply("7")]


@pytest.mark.parametrize("engine", ["fake", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_run_and_the_endpoint_give_calls_the_same_rewards(tmp_path: Path, engine: Any) -> None:
    rows: list[dict[str, Any]] = [chat(*TURNS) | {"tools": [ADD]}, chat(*TURNS[:2]) | {"tools": [ADD]}, chat(*TURNS)]
    score(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "out", model=MODEL, engine=engine))
    rewards = [row["reward"] for row in scored(tmp_path / "out")]
    assert len(set(rewards)) == 3
    online = scorer(MODEL, engine=EngineSettings(engine=engine))
    try:
        answer = post(application([online]), "/v1/rewards", {"conversations": rows}).json()
    finally:
        online.close()
    assert [item["responses"][0]["reward"] for item in answer["data"]] == pytest.approx(rewards, abs=1e-5)
    if engine == "vllm":
        assert rewards == pytest.approx([by_transformers(**row) for row in rows], abs=1e-4)


def by_transformers(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> float:
    """The reward of a conversation, with arguments as mappings, which templates are given."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = BUILT_IN / "tools"
    turns = json.loads(json.dumps(messages))
    for turn in turns:
        turn["content"] = turn["content"] or ""
        for item in turn.get("tool_calls", []):
            item["function"]["arguments"] = json.loads(item["function"]["arguments"])
    ids = AutoTokenizer.from_pretrained(folder).apply_chat_template(turns, tools=tools, return_dict=False)
    head = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return float(head(torch.tensor([ids])).logits[0, 0])


@pytest.mark.parametrize("engine", ["fake", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_run_and_the_endpoint_give_a_judge_the_same_text_of_calls(tmp_path: Path, engine: Any) -> None:
    criteria = [{"name": "right", "text": "correctness", "weight": 2}, {"name": "long", "text": "verbosity", "weight": -1}]
    rows = [
        chat(*turns) | {"tools": [ADD], "criteria": criteria, "reference": reference}
        for turns in (TURNS, TURNS[:1] + TURNS[3:], TURNS[:2])
        for reference in ("7", "8")
    ]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    judge = {"model": "tiny-criteria", "family": "criteria", "criteria_column": "criteria", "temperature": 0}
    score(settings(corpus, tmp_path / "out", engine=engine, **judge))
    online = scorer("tiny-criteria", engine=EngineSettings(engine=engine), judge=JudgeSettings(temperature=0))
    fields = [{"criteria": row["criteria"], "reference": row["reference"]} for row in rows]
    bodies = [{"messages": row["messages"], "tools": [ADD], "fields": more} for row, more in zip(rows, fields, strict=True)]
    try:
        answer = post(application([online]), "/v1/rewards", {"conversations": bodies}).json()
    finally:
        online.close()
    responses = [item["responses"][0] for item in answer["data"]]
    results = scored(tmp_path / "out")
    assert [row["reason"] for row in results] == [None] * len(rows)
    assert [response["reward"] for response in responses] == pytest.approx([row["reward"] for row in results], abs=1e-5)
    if engine == "vllm":
        values = [dict(row["criteria_scores"])["right"] for row in results]
        assert values[:4] == [1.0, 0.0, 1.0, 0.0], "the reference decides, whatever calls were made"


def test_every_turn_or_final_answers_alone_are_judged(tmp_path: Path) -> None:
    corpus = write(
        tmp_path / "c.jsonl", lines([chat(*TURNS), chat(*TURNS[:2]), chat(user("q"), reply(None, tool_calls=[{}]))])
    )
    outcomes = {}
    for turns in ("all", "final-answer"):
        score(settings(corpus, tmp_path / turns, model=MODEL, turns=turns))
        outcomes[turns] = [(row["response_name"], row["reason"], row["response_text"]) for row in scored(tmp_path / turns)]
    text = 'tool_call: {"id": "c1", "name": "add", "arguments": {"a": 3, "b": 4}}'
    assert outcomes["all"] == [
        ("turn[1]", None, text), ("turn[3]", None, "7"), ("turn[1]", None, text), ("turn[1]", Reason.TOOL_CALL, None),
    ]  # fmt: skip
    assert outcomes["final-answer"] == [
        ("final", None, "7"), ("final", Reason.NO_FINAL_ASSISTANT, None), ("final", Reason.TOOL_CALL, None),
    ]  # fmt: skip


def test_a_model_that_is_shown_no_calls_says_what_is_missing(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat(*TURNS)]))
    with pytest.raises(SourceError, match=r"(?s)1 tool_call.*tool_call: the template refuses it: Unknown role tool"):
        score(settings(corpus, tmp_path / "out", model="tiny-scalar"))


def test_a_verifier_compares_no_calls(tmp_path: Path) -> None:
    rows = [chat(*TURNS) | {"reference": "7"}, chat(*TURNS[:2]) | {"reference": "7"}]
    score(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "out", model="exact-match"))
    assert [(row["reason"], row["reward"]) for row in scored(tmp_path / "out")] == [(None, 1.0), (Reason.TOOL_CALL, None)]


def test_exports_hold_calls_or_leave_them_out(tmp_path: Path) -> None:
    row = {"prompt": TURNS[:1], "chosen": [SUM], "rejected": [WRONG], "tools": json.dumps([ADD])}
    score(settings(write(tmp_path / "c.jsonl", lines([row])), tmp_path / "out", model=MODEL))
    assert pair(str(tmp_path / "out"), tmp_path / "trl", trainer="trl").rows == 1
    (made,) = rows_in(tmp_path / "trl")
    assert json.loads(made["tools"]) == [ADD]
    arguments = [made[side][0]["tool_calls"][0]["function"]["arguments"] for side in ("chosen", "rejected")]
    assert sorted(arguments, key=str) == [{"a": 3, "b": 4}, {"a": 3, "b": 5}]
    for trainer in ("openrlhf", "nemo-rl", "llama-factory"):
        summary = pair(str(tmp_path / "out"), tmp_path / trainer, trainer=trainer)
        assert (summary.rows, dict(summary.left)) == (0, {"tool_call": 1})
    export(str(tmp_path / "out"), tmp_path / "sft", "sft")
    assert [len(row["messages"][-1]["tool_calls"]) for row in rows_in(tmp_path / "sft")] == [1, 1]
