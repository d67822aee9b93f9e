"""Rows for TRL, loaded and prepared by TRL itself: its loader, its utilities, and what its trainers do before training."""

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.records import Message, Role
from pipelines.folders.scored_corpus.candidates import PreferencePair
from pipelines.results.exports.trainer_format import Labels
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from tests.support.candidates import saying

SYSTEM, QUESTION, AGAIN = "Be brief.", "2 + 2?", "And 3 + 3?"
LONG = (
    Message(Role.SYSTEM, SYSTEM),
    Message(Role.USER, QUESTION),
    Message(Role.ASSISTANT, "4"),
    Message(Role.USER, AGAIN),
)
SHORT = LONG[1:2]


def pair(context: tuple[Message, ...], chosen: str, rejected: str, rewards: tuple[float, float]) -> PreferencePair:
    sides = [saying(context, text, reward) for text, reward in zip((chosen, rejected), rewards, strict=True)]
    return PreferencePair(*sides)


PAIRS = [pair(LONG, "6", "7", (2.0, -1.5)), pair(SHORT, "4", "five", (1.0, 0.5))]
PREFERENCES = ["trl", "trl-implicit"]

Load = Callable[[Sequence[dict[str, Any]]], Any]


@pytest.fixture(scope="module")
def utilities() -> Any:
    return importlib.import_module("trl.data_utils")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A policy's, in whose template each turn has a header and an end."""
    return importlib.import_module("transformers").AutoTokenizer.from_pretrained(BUILT_IN / "genrm")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Rows as a JSONL file, loaded as TRL's scripts load one."""

    def loaded(rows: Sequence[dict[str, Any]]) -> Any:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        datasets = importlib.import_module("datasets")
        return datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))

    return loaded


def rows_of(name: str, pairs: Sequence[PreferencePair] = PAIRS) -> list[dict[str, Any]]:
    return [row for pair in pairs for row in PAIR_FORMATS[name].rows(pair)]


def kto_rows() -> list[dict[str, Any]]:
    sides = [side for pair in PAIRS for side in (pair.chosen, pair.rejected)]
    return list(RESPONSE_FORMATS["kto"].rows(sides, Labels(0.75)))


def turn(role: str, text: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"


ASKED = "<|start_header_id|>assistant<|end_header_id|>\n\n"
LONG_PROMPT = turn("system", SYSTEM) + turn("user", QUESTION) + turn("assistant", "4") + turn("user", AGAIN) + ASKED
SHORT_PROMPT = turn("user", QUESTION) + ASKED
WRITTEN = [(LONG_PROMPT, "6<|eot_id|>", "7<|eot_id|>"), (SHORT_PROMPT, "4<|eot_id|>", "five<|eot_id|>")]


@pytest.mark.parametrize("name", PREFERENCES)
def test_fields_that_come_along_change_nothing(utilities: Any, load: Load, name: str) -> None:
    bare = load(rows_of(name))
    carrying = load([{**row, "id": index, "answer": "x", "Domain": None} for index, row in enumerate(rows_of(name))])
    assert all(map(utilities.is_conversational, carrying))
    sides = ("prompt", "chosen", "rejected")
    result = [[utilities.maybe_extract_prompt(row)[side] for side in sides] for row in (*bare, *carrying)]
    assert result[: len(bare)] == result[len(bare) :]


def prepare(trainer: Any, dataset: Any, tokenizer: Any) -> Any:
    """What the trainer makes of a dataset before it trains: token ids, under the names that it then looks for."""
    itself = SimpleNamespace(calculate_KL=False, undesirable_weight=1.0, desirable_weight=1.0)
    settings = SimpleNamespace(dataset_num_proc=None, max_length=512, truncation_mode="keep_start")
    return trainer._prepare_dataset(itself, dataset, tokenizer, settings, "train")


def columns(trainer: Any) -> list[str]:
    """The columns that the trainer keeps."""
    itself = SimpleNamespace(_signature_columns=None, _is_vision_dataset=False)
    trainer._set_signature_columns_if_needed(itself)
    return list(itself._signature_columns)


@pytest.mark.parametrize("name", PREFERENCES)
def test_dpo_trainer_learns_the_sides_after_the_prompt(load: Load, tokenizer: Any, name: str) -> None:
    trainer = importlib.import_module("trl.trainer.dpo_trainer").DPOTrainer
    prepared = prepare(trainer, load(rows_of(name)), tokenizer)
    read = [[tokenizer.decode(row[key]) for key in ("prompt_ids", "chosen_ids", "rejected_ids")] for row in prepared]
    assert [tuple(texts) for texts in read] == [(tokenizer.bos_token + prompt, *sides) for prompt, *sides in WRITTEN]
    assert "margin" not in columns(trainer)


@pytest.mark.parametrize("name", ["trl-reward", *PREFERENCES])
def test_reward_trainer_has_whole_conversations_and_the_margin(load: Load, tokenizer: Any, name: str) -> None:
    module = importlib.import_module("trl.trainer.reward_trainer")
    prepared = prepare(module.RewardTrainer, load(rows_of(name)), tokenizer)
    read = [[tokenizer.decode(row[key]) for key in ("chosen_ids", "rejected_ids")] for row in prepared]
    assert read == [[tokenizer.bos_token + prompt + side for side in sides] for prompt, *sides in WRITTEN]
    assert columns(module.RewardTrainer) == ["chosen_ids", "rejected_ids", "margin"]
    batch = module.DataCollatorForPreference(pad_token_id=0)(list(prepared))
    assert batch["margin"].tolist() == [3.5, 0.5]


def test_kto_trainer_learns_completions_with_their_labels(load: Load, tokenizer: Any) -> None:
    trainer = importlib.import_module("trl.trainer.kto_trainer").KTOTrainer
    prepared = prepare(trainer, load(kto_rows()), tokenizer)
    read = [(tokenizer.decode(row["prompt_ids"]), tokenizer.decode(row["completion_ids"]), row["label"]) for row in prepared]
    assert read == [
        (tokenizer.bos_token + prompt, side, label)
        for prompt, *sides in WRITTEN
        for side, label in zip(sides, (True, False), strict=True)
    ]
    assert {"prompt_ids", "completion_ids", "label"} < set(columns(trainer))


def test_fine_tuning_rows_are_conversations(utilities: Any, load: Load, tokenizer: Any) -> None:
    rows = [row for pair in PAIRS for row in RESPONSE_FORMATS["sft"].rows([pair.chosen], Labels())]
    for row, (prompt, chosen, _) in zip(load(rows), WRITTEN, strict=True):
        assert utilities.is_conversational(row)
        assert utilities.apply_chat_template(row, tokenizer) == {"text": tokenizer.bos_token + prompt + chosen}


def test_fine_tuning_on_turns_computes_the_loss_on_the_kept_turn_alone(load: Load, tokenizer: Any) -> None:
    trainer = importlib.import_module("trl.trainer.sft_trainer").SFTTrainer
    kept = [pair.chosen for pair in PAIRS]
    itself = SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=True)
    settings = SimpleNamespace(
        dataset_num_proc=None,
        dataset_text_field="text",
        shuffle_dataset=False,
        assistant_only_loss=False,
        max_length=512,
        truncation_mode="keep_start",
    )
    rows = load(list(RESPONSE_FORMATS["sft-turns"].rows(kept, Labels())))
    prepared = trainer._prepare_dataset(itself, rows, tokenizer, settings, False, None, "train")
    read = [
        (tokenizer.decode(row["input_ids"]), tokenizer.decode([token for token in row["labels"] if token != -100]))
        for row in prepared
    ]
    assert read == [(tokenizer.bos_token + prompt + chosen, chosen) for prompt, chosen, _ in WRITTEN]


def test_a_prompt_that_ends_with_the_assistant_would_be_gone_on_with(utilities: Any, tokenizer: Any) -> None:
    """Why such pairs are refused: the answer would be the rest of a turn, and not a turn."""
    ends = pair(LONG[:3], "6", "7", (1.0, 0.0))
    assert PAIR_FORMATS["trl"].refuse(ends) == "no_question"
    (row,) = rows_of("trl", [ends])
    sides = {key: row[key] for key in ("prompt", "chosen", "rejected")}
    assert not utilities.apply_chat_template(sides, tokenizer)["prompt"].endswith(ASKED)
    only_system = pair(LONG[:1], "6", "7", (1.0, 0.0))
    assert PAIR_FORMATS["trl"].refuse(only_system) == "no_question"
    with pytest.raises(ValueError, match="Invalid role"):
        utilities.apply_chat_template({**sides, "prompt": rows_of("trl", [only_system])[0]["prompt"]}, tokenizer)
