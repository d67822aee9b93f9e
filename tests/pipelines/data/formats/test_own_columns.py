"""A user's own columns: found by name or path, carried to the workers, and part of what a run is."""

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from actors.errors import SettingsError, SourceError
from actors.records import Reason
from pipelines.data.corpus import readers
from pipelines.data.corpus.corpus_files import Range
from pipelines.data.corpus.units import Unit
from pipelines.data.formats import OwnColumns, RowRequests, RowShape, requests, with_fields
from pipelines.run.prepare.choose_shape import own_columns_of
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import ResolvedRun, resolve
from pipelines.run.prepare.score_requests import parse_rows
from pipelines.settings.run_settings import RowSettings, ScoreSettings
from tests.support.corpora import lines, settings, write
from tests.support.parsed_rows import account, contexts, judged, refused, reply, user

ROW = {"task": {"question": "q", "system": "s"}, "choices": [{"text": "a"}, {"text": "b"}], "a.b": "dotted", "who": None}


def read(row: object, prompt: str = "prompt", response: str = "response", system: str | None = None) -> RowRequests:
    return requests(OwnColumns(prompt, response, system).shape(), row)


@pytest.mark.parametrize(
    ("prompt", "response", "answer"),
    [
        ("task.question", "choices[1].text", "b"),
        ("task.question", "a.b", "dotted"),
        ("task.question", "choices[0].text", "a"),
    ],
)
def test_a_column_is_a_name_or_a_path(prompt: str, response: str, answer: str) -> None:
    row_requests = read(ROW, prompt, response, "task.system")
    assert (contexts(row_requests), judged(row_requests)) == ([[("system", "s"), ("user", "q")]], {"final": answer})


def test_a_path_that_leads_nowhere_is_a_missing_field() -> None:
    for path in (
        "task.answer",
        "choices[2]",
        "choices.text",
        "task[0]",
        "who.name",
        "nobody",
        "choices[x]",
        "",
        "a..b",
        "[0]",
        "a[",
    ):
        assert refused(read(ROW, "task.question", path)) == {"final": Reason.MISSING_FIELD}
        assert refused(read(ROW, path, "a.b")) == {"final": Reason.MISSING_FIELD}


def test_a_list_of_responses_is_judged_one_by_one() -> None:
    row_requests = read({"prompt": "q", "response": ["a", reply("b"), "", user("c")]})
    assert judged(row_requests) == {"response[0]": "a", "response[1]": "b"}
    assert refused(row_requests) == {"response[2]": Reason.EMPTY_CONTENT, "response[3]": Reason.NO_FINAL_ASSISTANT}
    assert refused(read({"prompt": "q", "response": []})) == {"final": Reason.EMPTY_CONTENT}


def test_a_list_of_turns_is_one_response_with_what_goes_before_it() -> None:
    turns = [reply("a"), user("b"), reply("c")]
    row_requests = read({"prompt": "q", "response": turns})
    before = [("user", "q"), ("assistant", "a"), ("user", "b")]
    assert (contexts(row_requests), judged(row_requests), refused(row_requests)) == ([before], {"final": "c"}, {})
    several = requests(OwnColumns("q", ("a", "b")).shape(), {"q": "q", "a": turns, "b": [reply("x"), reply("y")]})
    assert judged(several) == {"a": "c", "b[0]": "x", "b[1]": "y"}
    assert contexts(several) == [before, [("user", "q")]]
    assert refused(read({"prompt": "q", "response": [user("other"), reply("a")]})) == {"final": Reason.WRONG_TYPE}
    whole = read({"prompt": "q", "response": [user("q"), reply("a")]})
    assert (contexts(whole), judged(whole)) == ([[("user", "q")]], {"final": "a"})
    assert refused(read({"prompt": "q", "response": [reply("a"), user("b")]})) == {"final": Reason.NO_FINAL_ASSISTANT}


def test_nobody_is_judged_after_another_answer_to_the_prompt() -> None:
    answered = [user("What is 3 + 4?"), reply("7")]
    row = {"prompt": answered, "response": "9", "responses": ["9", reply("8")], "turns": [user("Sure?"), reply("9")]}
    assert refused(read(row)) == {"final": Reason.WRONG_TYPE}
    assert refused(read(row, response="responses")) == dict.fromkeys(("response[0]", "response[1]"), Reason.WRONG_TYPE)
    assert judged(read(row, response="turns")) == {"final": "9"}
    unanswered = requests(OwnColumns("prompt", None).shape(), row)
    assert contexts(unanswered) == [[("user", "What is 3 + 4?")]]


SYSTEMS = {"system": "Be brief.", "system_prompt": "Be brief."}


def test_a_system_prompt_beside_the_columns_belongs_to_what_is_judged_and_asked() -> None:
    all_turns: list[object] = ["q", [user("q")], [{"role": "system", "content": "Be brief."}, user("q")]]
    besides: list[dict[str, str]] = [{"system": "Be brief."}, {"system_prompt": "Be brief."}, SYSTEMS]
    for beside in besides:
        for turns in all_turns:
            row = {"question": turns, "chosen": "good", "rejected": "bad", **beside}
            pair = OwnColumns("question", ("chosen", "rejected"))
            before = [[("system", "Be brief."), ("user", "q")]]
            assert contexts(requests(pair.shape(), row)) == before
            assert contexts(requests(OwnColumns("question", None).shape(), row)) == before
            other = {"system": "Be brief.", "system_prompt": "Be long."}
            assert refused(requests(pair.shape(), row | other)) == dict.fromkeys(pair.responses, Reason.TWO_SYSTEM_PROMPTS)


def test_what_stands_beside_a_named_path_belongs_to_its_conversation() -> None:
    tool = {"type": "function", "function": {"name": "w"}}
    fields = {"input": [user("q")], "messages": [user("q")], "tools": [tool], "instructions": "Be brief.", "system": None}
    row = {"request": fields, "answer": "a", "all": {"turns": json.dumps([user("q"), reply("a")]), **fields}}
    brief, plain = [("system", "Be brief."), ("user", "q")], [("user", "q")]
    for own_columns, context in (
        (OwnColumns("request.input", "answer"), brief),
        (OwnColumns("request.messages", "answer"), plain),
        (OwnColumns("request.input", "answer", ""), plain),
        (OwnColumns(None, None, conversations=("all.turns",)), plain),
    ):
        parsed = requests(own_columns.shape(), row)
        assert (contexts(parsed), judged(parsed)) == ([context], {"final": "a"})
        assert parsed.requests[0].tools == (json.dumps(tool),)
    by_prompt = OwnColumns("request.input", "answer").shape()
    assert judged(requests(by_prompt, row | {"tools": [tool]})) == {"final": "a"}
    for beside in ({"tools": [{"name": "v"}]}, {"request": fields | {"tools": [{"type": "web_search"}]}}):
        assert refused(requests(by_prompt, row | beside)) == {"final": Reason.TOOL_CALL}
    assert refused(requests(by_prompt, row | {"system": "Be long."})) == {"final": Reason.TWO_SYSTEM_PROMPTS}
    assert refused(requests(OwnColumns("request.input", None).shape(), row)) == {"candidate": Reason.TOOL_CALL}
    parts = OwnColumns("request.input", "request.system")
    assert contexts(requests(parts.shape(), {"request": fields | {"system": "a", "instructions": None}})) == [plain]


def test_a_system_column_stands_for_the_fields_that_have_the_name() -> None:
    row = {"q": "q", "a": "a", "s": "Be kind.", **SYSTEMS}
    assert contexts(read(row, "q", "a", "s")) == [[("system", "Be kind."), ("user", "q")]]
    for blank in (None, " "):
        assert contexts(read(row | {"s": blank}, "q", "a", "s")) == [[("user", "q")]]
    assert refused(read(row | {"s": 5}, "q", "a", "s")) == {"final": Reason.CONTENT_NOT_TEXT}


def test_an_empty_system_column_says_that_no_field_is_the_system_prompt() -> None:
    responses: list[str | None] = ["a", None]
    values: list[object] = [3, "gpt-4"]
    for name in ("system", "system_prompt", ""):
        for value in values:
            for response in responses:
                row = {"q": "q", "a": "a", name: value}
                own_columns = OwnColumns("q", response, "")
                own_columns.check([row])
                with pytest.raises(SourceError, match="none of the 1 rows looked at has ''"):
                    OwnColumns("", response, "").check([{"q": "q", "a": "a"}])
                assert own_columns.shape().looks_like(row)
                assert contexts(requests(own_columns.shape(), row)) == [[("user", "q")]]
                assert OwnColumns.read(own_columns.recorded()) == own_columns != OwnColumns("q", response)


def test_a_column_that_is_named_for_something_else_is_no_system_prompt() -> None:
    row = {"q": "q", "system": "a", "system_prompt": "b"}
    responses = OwnColumns("q", ("system", "system_prompt")).shape()
    assert contexts(requests(responses, row)) == [[("user", "q")]]
    assert judged(read({"q": "q", "system": {"answers": ["a"]}}, "q", "system.answers[0]")) == {"final": "a"}
    assert contexts(read(row, "system_prompt", "q", "system")) == [[("system", "a"), ("user", "b")]]
    assert contexts(requests(OwnColumns("system_prompt", None).shape(), {"system_prompt": "b"})) == [[("user", "b")]]


def test_what_a_row_is_judged_by_is_no_system_prompt_too() -> None:
    unanswereds: list[bool] = [False, True]
    for name in ("system", "system_prompt"):
        for path in ("", ".rubric"):
            for unanswered in unanswereds:
                row = {"prompt": "q", "chosen": "a", "rejected": "b", name: {"rubric": "Be brief."} if path else "Be brief."}
                own_columns = OwnColumns("prompt", None if unanswered else "chosen")
                for shape in (
                    RowShape(
                        "columns", own_columns=own_columns, columns=(("principle", name + path),), unanswered=unanswered
                    ),
                    RowShape(
                        "prompt" if unanswered else "preference",
                        columns=(("principle", name + path),),
                        unanswered=unanswered,
                    ),
                ):
                    request = shape.requests(row)
                    assert contexts(request) == [[("user", "q")]]
                    assert request.requests[0].principles == ("Be brief.",)
                    other = "system" if name == "system_prompt" else "system_prompt"
                    assert contexts(shape.requests({**row, other: "Be kind."})) == [[("system", "Be kind."), ("user", "q")]]


def test_a_field_that_holds_principles_is_still_read_for_what_else_it_is_named_for() -> None:
    row = {"system": {"rubric": "Be brief.", "text": "Be kind.", "q": "q"}, "a": "a", "system_prompt.rubric": "Be long."}
    shape = RowShape(
        "columns", own_columns=OwnColumns("system.q", "a", "system.text"), columns=(("principle", "system.rubric"),)
    )
    assert contexts(shape.requests(row)) == [[("system", "Be kind."), ("user", "q")]]
    assert shape.requests(row).requests[0].principles == ("Be brief.",)
    dotted = RowShape("columns", own_columns=OwnColumns("system.q", "a"), columns=(("principle", "system_prompt.rubric"),))
    request = dotted.requests({**row, "system_prompt": "Be kind."})
    assert contexts(request) == [[("system", "Be kind."), ("user", "q")]]
    assert request.requests[0].principles == ("Be long.",)


VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["q", "", "user", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "a.b", "role", "content"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@tried(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(row=VALUES, paths=st.lists(st.sampled_from(["a", "b", "a.b", "a[0]", "b[1].a"]) | st.text(), min_size=3, max_size=3))
def test_no_row_fails_and_no_response_vanishes(row: object, paths: list[str]) -> None:
    account(read(row, *paths))


# --- from the settings to the workers ------------------------------------------------------------------------------

COLUMNS = {"prompt_column": "task.question", "response_column": "choices[0].text"}


def planned(folder: Path, rows: list[Any], **options: Any) -> tuple[ScoreSettings, ResolvedRun]:
    score_settings = settings(write(folder / "c.jsonl", lines(rows)), folder / "out", **options)
    return score_settings, resolve(score_settings)


def test_columns_travel_to_the_workers_and_are_part_of_what_a_run_is(tmp_path: Path) -> None:
    message, made = planned(tmp_path, [ROW, ROW], **COLUMNS)
    assert made.shape_found == "columns: 2 of 2 rows have `task.question` and `choices[0].text`"
    preparation = pickle.loads(pickle.dumps(made.preparation))
    assert judged(preparation.row_shape.requests(ROW)) == {"final": "a"}
    identity = manifest_of(made, message).identity
    assert identity["shape"] == "columns"
    assert identity["own_columns"] == {
        "prompt": "task.question",
        "response": "choices[0].text",
        "system": None,
        "conversations": [],
    }


def test_responses_that_would_have_one_name_are_refused() -> None:
    assert refused(requests(OwnColumns("q", ("a[0]", "a")).shape(), {"q": "x", "a": ["y"]})) == {"final": Reason.WRONG_TYPE}


def test_several_columns_are_responses_of_one_row_by_their_names(tmp_path: Path) -> None:
    row = {"q": "why", "output_1": "a", "output_2": ["b", "c"], "chosen": {"answer": "d"}}
    names = ["output_1", "output_2", "chosen.answer", "gone"]
    message, made = planned(tmp_path, [row, {**row, "gone": "e"}], prompt_column="q", response_column=names)
    request = made.preparation.row_shape.requests(row)
    assert judged(request) == {"output_1": "a", "output_2[0]": "b", "output_2[1]": "c", "chosen.answer": "d"}
    assert [(bad.name, bad.reason) for bad in request.rejected] == [("gone", Reason.MISSING_FIELD)]
    assert request.names == ("output_1", "output_2[0]", "output_2[1]", "chosen.answer", "gone")
    recorded = manifest_of(made, message).identity["own_columns"]
    assert (
        recorded
        == json.loads(json.dumps(recorded))
        == {"prompt": "q", "response": names, "system": None, "conversations": []}
    )
    assert OwnColumns.read(recorded) == made.preparation.row_shape.own_columns


def test_a_parquet_table_has_its_system_prompts_beside_the_columns(tmp_path: Path) -> None:
    row = {"question": "q", "chosen": "good", "rejected": "bad", "system": "Be brief.", "id": 1}
    pq.write_table(pa.Table.from_pylist([row]), path := tmp_path / "c.parquet")
    made = resolve(settings(path, tmp_path / "out", prompt_column="question", response_column=["chosen", "rejected"]))
    assert "system" in made.preparation.columns.carried.names
    (table,) = readers.read(Unit(made.files[0], Range(0, 1)), 2**20, lambda *_: None)
    (request,), _ = parse_rows(table, made.preparation.row_shape, made.preparation.columns)
    assert request is not None
    assert contexts(request) == [[("system", "Be brief."), ("user", "q")]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_column": "q", "response_column": ["a", "b", "a"]}, "a is given twice"),
        ({"prompt_column": "a"}, "go together"),
        ({"response_column": "a"}, "go together"),
        ({"system_column": "a"}, "go together"),
        ({"system_column": ""}, "go together"),
        (COLUMNS | {"format": "messages"}, "--format messages"),
        (COLUMNS | {"turns": "all"}, "--set turns=all"),
    ],
    ids=str,
)
def test_columns_that_do_not_go_together_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        planned(tmp_path, [ROW], **options)


@pytest.mark.parametrize("wrong", ["prompt_column", "response_column", "system_column"])
def test_a_column_that_no_row_has_is_refused_before_the_run(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(SourceError, match=r"none of the 1 rows looked at has 'nobody'\. Keys seen: 'task', 'choices'"):
        planned(tmp_path, [ROW], **COLUMNS | {wrong: "nobody"})


# --- whole conversations, last elements, all elements ---------------------------------------------------------------------

TALK = [user("q"), reply("a"), user("r"), reply("b")]
SHARED = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "b"}]


def talks(row: dict[str, Any], *columns: str, turns: Any = "final") -> RowRequests:
    return requests(OwnColumns(None, None, None, columns).shape(), row, turns)


@pytest.mark.parametrize(("row", "column"), [({"chat": TALK}, "chat"), ({"data": [{"turns": TALK}]}, "data[-1].turns")])
def test_a_column_may_hold_a_whole_conversation(row: dict[str, Any], column: str) -> None:
    row_requests = talks(row | {"system": "s"}, column)
    before = [("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "r")]
    assert (contexts(row_requests), judged(row_requests)) == ([before], {"final": "b"})
    assert judged(talks(row, column, turns="all")) == {"turn[1]": "a", "turn[3]": "b"}


def test_of_several_conversations_each_is_judged_by_its_name() -> None:
    row = {"chosen_messages": TALK, "rejected_messages": SHARED, "all": [SHARED, TALK]}
    row_requests = talks(row, "chosen_messages", "rejected_messages")
    assert judged(row_requests) == {"chosen_messages": "b", "rejected_messages": "b"}
    assert [len(context) for context in contexts(row_requests)] == [3, 1]
    assert judged(talks(row, "all[]")) == {"all[0]": "b", "all[1]": "b"}
    with pytest.raises(SettingsError, match="turns='all' needs rows that hold a conversation"):
        talks(row, "chosen_messages", "rejected_messages", turns="all")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"chat": [user("q")]}, Reason.NO_FINAL_ASSISTANT),
        ({"chat": "q"}, Reason.WRONG_TYPE),
        ({"chat": []}, Reason.NO_MESSAGES),
        ({"chat": [{"input": "q", "output": "a"}]}, Reason.MISSING_FIELD),
        ({}, Reason.MISSING_FIELD),
    ],
    ids=str,
)
def test_a_column_without_a_conversation_has_a_reason(row: dict[str, Any], reason: Reason) -> None:
    assert refused(talks(row, "chat")) == {"final": reason}
    assert refused(talks(row | {"other": TALK}, "chat", "other")) == {"chat": reason}


ANSWERS = [{"answer": "a", "rank": 2}, {"rank": 1}, {"answer": "c"}]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        ("answers[].answer", {"response[0]": "a", "response[2]": "c"}),
        ("answers[-1].answer", {"final": "c"}),
        ("texts[]", {"response[0]": "x", "response[1]": "y"}),
        ("nested[][0]", {"response[0]": "x", "response[1]": "z"}),
        ("nested[-1]", {"response[0]": "z"}),
    ],
)
def test_a_path_may_lead_to_the_last_element_or_to_each(column: str, texts: dict[str, str]) -> None:
    row = {"prompt": "q", "answers": ANSWERS, "texts": ["x", "y"], "nested": [["x", "y"], ["z"]], "other": "x"}
    row_requests = read(row, response=column)
    assert judged(row_requests) == texts
    account(row_requests)
    several = requests(OwnColumns("prompt", (column, "other")).shape(), row)
    assert set(judged(several).values()) == {*texts.values(), "x"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answers": []}, Reason.EMPTY_CONTENT),
        ({"answers": "a"}, Reason.WRONG_TYPE),
        ({"answers": None}, Reason.EMPTY_CONTENT),
        ({}, Reason.MISSING_FIELD),
    ],
    ids=str,
)
def test_a_path_to_no_elements_has_a_reason(row: dict[str, Any], reason: Reason) -> None:
    assert refused(read({"prompt": "q"} | row, response="answers[].answer")) == {"final": reason}


def test_principles_may_be_those_of_each_element() -> None:
    row = {"prompt": "q", "response": "a", "rubrics": [{"text": "Be kind."}, {"text": "Be brief."}]}
    row_requests = with_fields(read(row), row, (("principle", "rubrics[].text"),))
    assert [request.principles for request in row_requests.requests] == [("Be kind.", "Be brief.")]


def test_a_column_of_another_case_is_asked_about() -> None:
    with pytest.raises(SourceError, match=r"Did you mean 'Prompt'\?"):
        OwnColumns("prompt", "Response").check([{"Prompt": "q", "Response": "a"}])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"conversation_column": ("c",), "prompt_column": "p"}, "--conversation-column c holds prompt and response"),
        ({"conversation_column": ("c",), "format": "messages"}, "--format messages says where"),
        ({"response_column": ("r",)}, "--prompt-column and --response-column go together"),
    ],
    ids=str,
)
def test_columns_that_say_two_things_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        own_columns_of(RowSettings(**options))


def test_a_conversation_is_a_prompt_where_a_policy_answers() -> None:
    columns = own_columns_of(RowSettings(conversation_column=("c",)), unanswered=True)
    assert columns is not None
    assert contexts(requests(columns.shape(), {"c": TALK})) == [[("user", "q"), ("assistant", "a"), ("user", "r")]]
    assert OwnColumns.read(json.loads(json.dumps(columns.recorded()))) == columns
    whole = OwnColumns(None, None, None, ("c", "d"))
    assert OwnColumns.read(json.loads(json.dumps(whole.recorded()))) == whole
