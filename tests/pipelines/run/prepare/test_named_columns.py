"""Whole conversations and elements of lists are named alike in the command, in a recipe, in Python and for datasets."""

from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

import assay
from tests.support.commands import summary
from tests.support.corpora import lines, scored, write
from tests.support.local_ray import run_here
from tests.support.parsed_rows import reply, user

pytestmark = pytest.mark.usefixtures("local_ray")

ROW: dict[str, Any] = {
    "chat": [user("What is 3 + 4?"), reply("7")],
    "chosen_messages": [user("What is 3 + 4?"), reply("7")],
    "rejected_messages": [user("What is 3 + 4?"), reply("9")],
    "task": {"question": "What is 3 + 4?"},
    "answers": [{"answer": "7"}, {"answer": "9"}],
    "output": [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "7"}]}],
}
COLUMNS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"conversation_column": ["chat"]}, {"final": "7"}),
    (
        {"conversation_column": ["chosen_messages", "rejected_messages"]},
        {"chosen_messages": "7", "rejected_messages": "9"},
    ),
    (
        {"prompt_column": "task.question", "response_column": ["answers[].answer"]},
        {"response[0]": "7", "response[1]": "9"},
    ),
    ({"prompt_column": "task.question", "response_column": ["output[-1]"]}, {"final": "7"}),
]


def flags(options: dict[str, Any]) -> list[str]:
    values = {name: value if isinstance(value, list) else [value] for name, value in options.items()}
    return [
        word for name, argument in values.items() for value in argument for word in (f"--{name.replace('_', '-')}", value)
    ]


@pytest.mark.parametrize(("options", "texts"), COLUMNS, ids=str)
def test_columns_read_the_same_wherever_they_are_named(
    tmp_path: Path, options: dict[str, Any], texts: dict[str, str]
) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([ROW] * 3))
    made_up = {"model": "tiny-scalar", "engine": "fake"}
    summary("score", corpus, tmp_path / "command", "--model", "tiny-scalar", "--engine", "fake", *flags(options))
    step = {"inputs": [str(corpus)], "output": str(tmp_path / "recipe"), **made_up, **options}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"score": step}))
    assert run_here("run", tmp_path / "recipe.yaml").returncode == 0
    assay.score(str(corpus), str(tmp_path / "python"), **made_up, **options)
    for folder in ("command", "recipe", "python"):
        assert {row["response_name"]: row["response_text"] for row in scored(tmp_path / folder)} == texts
    dataset = assay.score(ray.data.from_items([ROW] * 3), **made_up, **options)
    assert {row["response_name"]: row["response_text"] for row in dataset.take_all()} == texts
