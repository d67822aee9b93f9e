"""Published models: two bodies as reward models, SmolLM2 (whose BOS token begins every turn) as a policy and as a judge."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import summary
from tests.support.corpora import chat, lines, scored, write
from tests.support.local_ray import run_here
from tests.support.real_models import real_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.usefixtures("local_ray")]
ROLES = {"system": "system", "human": "user", "gpt": "assistant"}
RUBRIC = """
shows: one
prompt: |
  {{ conversation }}
  Answer: {{ response }}
  How good is the answer, from 1 to 5?
json_schema: {type: object, properties: {score: {type: integer, enum: [1, 2, 3, 4, 5]}}, required: [score]}
low: 1
high: 5
"""

Turns = list[dict[str, str]]


def conversations(shared_data: Path) -> list[Turns]:
    """Forty conversations of people with a model, each up to the first answer that ends after 200 characters."""
    ranked = json.loads((shared_data / "formats" / "sharegpt_ranking_40.json").read_text())
    return [begin([*row["conversations"], min(row["chosen"], row["rejected"], key=len_of)]) for row in ranked]


def len_of(turn: dict[str, str]) -> int:
    return len(turn["value"])


def begin(turns: Turns) -> Turns:
    kept: Turns = []
    while turns and (sum(len(turn["content"]) for turn in kept) < 200 or kept[-1]["role"] != "assistant"):
        turn, *turns = turns
        kept.append({"role": ROLES[turn["from"]], "content": turn["value"]})
    return kept


@pytest.mark.parametrize(("name", "windowed"), [("smollm2-head", False), ("gemma3-head", True)])
def test_rewards_of_real_conversations_are_those_of_transformers(
    name: str, windowed: bool, tmp_path: Path, shared_data: Path
) -> None:
    model, turns = real_model(name), conversations(shared_data)
    corpus = write(tmp_path / "corpus.jsonl", lines({"messages": messages} for messages in turns))
    counts = summary("score", corpus, tmp_path / "out", "--model", model, "--family", "scalar", run=run_here)
    assert counts["scored"] == len(turns) == 40
    rows = scored(tmp_path / "out")
    expected, tokens = rewards_by_transformers(model, turns)
    assert [row["prompt_tokens"] for row in rows] == tokens
    difference = max(abs(row["reward"] - reward) for row, reward in zip(rows, expected, strict=True))
    print(f"{name}: largest difference of rewards {difference:.1e}, in {sum(tokens)} tokens")
    assert max(expected) - min(expected) > 1
    assert difference <= 1e-4

    # A window that is passed over shows in conversations that are longer than it.
    longest = tokens.index(max(tokens))
    assert tokens[longest] > 512
    ((unbounded,), _) = rewards_by_transformers(model, [turns[longest]], sliding_window=32_768)
    assert (abs(rows[longest]["reward"] - unbounded) > 0.01) == windowed


def rewards_by_transformers(folder: Path, conversations: list[Turns], **config: Any) -> tuple[list[float], list[int]]:
    """The rewards, and the numbers of tokens, as transformers' own loop has them."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    changed = AutoConfig.from_pretrained(folder, **config)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder, config=changed, dtype=torch.float32).eval()
    ids = [tokenizer.apply_chat_template(turns, return_tensors="pt", return_dict=False) for turns in conversations]
    with torch.inference_mode():
        return [float(model(prompt).logits[0, 0]) for prompt in ids], [prompt.shape[1] for prompt in ids]


def test_a_policy_answers(tmp_path: Path) -> None:
    corpus = write(tmp_path / "prompts.jsonl", lines([{"prompt": "What is the capital of France?"}]))
    options = ("--policy", real_model("smollm2"), "--judge", "tiny-scalar", "-n", 1)
    greedy = ("--set", "policy.policy_max_tokens=24", "--set", "policy.policy_temperature=0")
    counts = summary("sample", corpus, tmp_path / "out", *options, *greedy, run=run_here)
    assert counts["scored"] == 1
    assert [row["candidate"] for row in scored(tmp_path / "out")] == ["The capital of France is Paris."]


def test_a_judge_by_a_rubric_answers(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", lines([chat("What is 3 + 4?", "7"), chat("Name a colour.", "Blue.")]))
    rubric = write(tmp_path / "rubric.yaml", RUBRIC.encode())
    options = ("--model", real_model("smollm2"), "--rubric", rubric, "--set", "judge.max_tokens=64")
    counts = summary("score", corpus, tmp_path / "out", *options, run=run_here)
    assert counts["scored"] == 2
    assert all(row["reward"] in (1, 2, 3, 4, 5) for row in scored(tmp_path / "out"))
