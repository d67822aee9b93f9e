"""What a run would reject is counted before its engines start, and nothing starts that could judge next to nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SettingsError, SourceError
from pipelines.data.formats import RowShape
from pipelines.run.prepare.resolve_run import ResolvedRun, resolve
from tests.support.corpora import lines, settings, write
from tests.support.models import write_model
from tests.support.parsed_rows import chat, reply, user

GOOD = chat(user("What is 3 + 4?"), reply("7"))
OPEN = chat(user("What is 3 + 4?"))
EMPTY = chat(user("What is 3 + 4?"), reply(" "))
LONG = chat(user("What is 3 + 4? " * 3000), reply("7"))
CONTROL = chat(user("What is <extra_id_1> 3 + 4?"), reply("7"))
UNKNOWN = chat({"role": "hummany", "content": "q"}, reply("a"))


def planned(folder: Path, rows: Sequence[Any], **options: Any) -> ResolvedRun:
    return resolve(settings(write(folder / "c.jsonl", lines(rows)), folder / "out", **options))


def test_what_cant_be_judged_is_counted_by_its_reason(tmp_path: Path) -> None:
    result = planned(tmp_path, [*[GOOD] * 7, EMPTY, LONG, CONTROL, EMPTY], model="tiny-attributes").shape_found
    assert result.endswith(
        "Of the 11 rows looked at, 4 responses can't be judged: 2 empty_content, 1 too_long, 1 control_token"
    )


def test_a_corpus_of_which_everything_can_be_judged_says_nothing_of_it(tmp_path: Path) -> None:
    assert "can't be judged" not in planned(tmp_path, [GOOD] * 5).shape_found


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (OPEN, r"no_final_assistant.*--set corpus.turns=all"),
        (UNKNOWN, r"unknown_role: messages: 'hummany'; known are system, developer, user, human"),
        (CONTROL, r"control_token.*the model would take such a mark"),
        (LONG, r"too_long.*--set render.too_long=trim-turns"),
        (chat(user("q"), reply(7)), r"content_not_text: messages: a number, 7, where text is expected"),
    ],
    ids=["open", "role", "control", "long", "number"],
)
def test_where_under_a_tenth_can_be_judged_nothing_starts(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(SourceError, match=rf"(?s)only 0 of the 3 responses in the 3 rows looked at .*{says}"):
        planned(tmp_path, [row] * 3, model="tiny-attributes")
    with pytest.raises(SourceError, match=r"only 1 of the 12 responses"):
        planned(tmp_path, [GOOD, *[row] * 11], model="tiny-attributes")
    assert planned(tmp_path, [GOOD, *[row] * 8], model="tiny-attributes").files


def test_the_look_reads_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    requests = RowShape.requests

    def counted(shape: Any, row: object) -> Any:
        read.append(row)
        return requests(shape, row)

    monkeypatch.setattr(RowShape, "requests", counted)
    planned(tmp_path, [GOOD] * 10)
    assert len(read) == 10


def test_a_field_that_comes_late_has_a_column(tmp_path: Path) -> None:
    rows = [{**GOOD, "note": "checked" if index >= 1500 else None} for index in range(3000)]
    assert "note" in planned(tmp_path, rows).preparation.columns.carried.names


def test_a_judge_that_compares_many_responses_is_tried_on_some_rows(tmp_path: Path) -> None:
    rows = [{"prompt": f"{index}?", "responses": [f"{each}" for each in range(40)]} for index in range(60)]
    resolved_run = planned(tmp_path, [*rows, {"prompt": "q", "responses": ["a", ""]}], model="tiny-genrm", pairs="all")
    assert resolved_run.files


def test_columns_beside_which_other_parts_of_a_conversation_stand_are_named(tmp_path: Path) -> None:
    row = {"query": "q", "response": "a", "history": [["x", "y"]], "rejected_response": "b", "id": 1}
    result = planned(tmp_path, [row] * 2, prompt_column="query", response_column="response").shape_found
    assert "Not read, though it may belong to a conversation: 'history', 'rejected_response'" in result


def test_what_a_detected_shape_leaves_is_named(tmp_path: Path) -> None:
    row = {"prompt": "q", "chosen": "a", "rejected": "b", "passage": "p", "responses": ["a", "b", "c"], "input": "q"}
    assert (
        "Not read, though it may belong to a conversation: 'passage', 'responses'"
        in planned(tmp_path, [row] * 2).shape_found
    )


def test_calls_without_tools_are_counted(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
    turns = [user("What is 3 + 4?"), call, {"role": "tool", "tool_call_id": "1", "content": "7"}, reply("7")]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    options = {"model": "tiny-tools"}
    result = planned(tmp_path, [{"messages": turns}] * 3, **options).shape_found
    assert "3 rows call tools and name none" in result
    assert "call tools" not in planned(tmp_path, [{"messages": turns, "tools": tools}] * 3, **options).shape_found


def test_a_policys_prompts_are_looked_at_too(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{"prompt": " "}] * 3))
    with pytest.raises(SourceError, match="only 0 of the 3 responses"):
        resolve(settings(corpus, tmp_path / "out"), unanswered=True)


def test_written_out_prompts_are_read_as_turns(tmp_path: Path) -> None:
    row = {"prompt": "\n\nHuman: q\n\nAssistant:", "response": " a"}
    resolved_run = planned(tmp_path, [row] * 4)
    assert resolved_run.preparation.row_shape.written_out
    assert "are taken apart" in resolved_run.shape_found


def test_the_terms_of_a_published_model_are_said_once(tmp_path: Path) -> None:
    model = write_model(tmp_path / "Skywork-Reward-V2-Qwen3-8B")
    shape = planned(tmp_path, [GOOD] * 5, model=str(model)).shape_found
    terms = "licence: its card's; trained on up to 16,384 tokens; its card shows it no system turn (arXiv 2507.01352)"
    assert shape.count(f"{model}: {terms}") == 1
    assert "licence" not in planned(tmp_path, [GOOD] * 5, model="tiny-scalar").shape_found


def test_a_reference_isnt_that_of_earlier_turns(tmp_path: Path) -> None:
    turns = [user("3 + 4?"), reply("7"), user("4 + 4?"), reply("8")]
    options = {"model": "exact-match", "turns": "all"}
    with pytest.raises(SettingsError, match="the reference of its row is that of the last"):
        planned(tmp_path, [chat(*turns) | {"reference": "8"}], **options)
    with_reference = [chat(*turns) | {"reference": "8"}]
    assert planned(tmp_path, with_reference, **options | {"turns": "final"}).files
    assert planned(tmp_path, with_reference, **options | {"model": "tiny-attributes"}).files  # reads no reference
