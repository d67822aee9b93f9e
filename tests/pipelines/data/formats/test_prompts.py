"""Rows that a policy is to answer: of every shape of prompts, good and bad."""

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import SourceError
from actors.records import Reason
from pipelines.data.formats import (
    CANDIDATE,
    PROMPT_SHAPES,
    SHAPES,
    OwnColumns,
    RowRequests,
    RowShape,
    Shape,
    detect,
    requests,
)
from tests.support.parsed_rows import account, chat, contexts, refused, reply, user

ASKED = [[("user", "q")]]


def read_row(row: Mapping[str, Any]) -> RowRequests:
    """A row read in the shape that it shows."""
    return requests(detect([row], PROMPT_SHAPES), row)


# --- every shape -----------------------------------------------------------------------------------------------------


def test_every_shape_of_a_prompt_is_the_same_question() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (chat(user("q")), "messages"),
        ({"conversations": [{"from": "human", "value": "q"}]}, "sharegpt"),
        ({"conversations": [user("q")]}, "sharegpt"),
        ({"instruction": "q"}, "alpaca"),
        ({"instruction": "q", "input": "", "output": "a"}, "alpaca"),
        *[({name: "q", "id": 1}, "prompt") for name in ("prompt", "question", "problem", "query", "input")],
        *[({name: [user("q")]}, "prompt") for name in ("prompt", "question", "problem", "query", "input")],
        ({"prompt": "q", "question": None, "input": 5}, "prompt"),
        ({"prompt": "q", "messages": None}, "prompt"),
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "prompt"),
    ]
    for row, shape in cases:
        assert detect([row], PROMPT_SHAPES).name == shape
        row_requests = read_row(row)
        account_of_a_prompt(row_requests)
        assert contexts(row_requests) == ASKED


def account_of_a_prompt(parsed: RowRequests) -> None:
    """A prompt is one request, with one response that isn't there yet."""
    assert parsed.names == (CANDIDATE,)
    assert [(response.name, response.content) for request in parsed.requests for response in request.responses] == [
        (CANDIDATE, "")
    ]
    assert parsed.rejected == ()


def test_what_the_assistant_said_last_is_left_out_and_all_before_stays() -> None:
    for row in (
        chat(user("q"), reply("a")),
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"prompt": [user("q"), reply("a")]},
    ):
        assert contexts(read_row(row)) == ASKED
    assert contexts(read_row(chat(user("q"), reply("a"), user("r")))) == [LONG]
    assert contexts(read_row(chat(user("q"), reply("a"), user("r"), reply("b")))) == [LONG]
    assert contexts(read_row(chat(user("q"), reply("a"), {"role": "tool", "content": "t"}))) == [[*LONG[:2], ("tool", "t")]]


# --- templates that are written out ---------------------------------------------------------------------------------------

LONG = [("user", "q"), ("assistant", "a"), ("user", "r")]
TEMPLATES = {
    "plain": ("q", [("user", "q")]),
    "nemo": (
        "<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr\n<extra_id_1>Assistant\n",
        [("system", "s"), *LONG],
    ),
    "nemo, no system": ("<extra_id_0>System\n\n<extra_id_1>User\nq\n<extra_id_1>Assistant\n", [("user", "q")]),
    "embedded": ("q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr", LONG),
    "llama": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        [("system", "s"), ("user", "q")],
    ),
}
"""Prompts, and the turns that they stand for."""

SIDES = {"chosen": "good", "rejected": "bad"}
RATED = dict.fromkeys(["helpfulness", "correctness", "coherence", "complexity", "verbosity"], 3)
ANSWERED: dict[str, tuple[Callable[[str], dict[str, Any]], bool]] = {
    # Rows by their shape, and whether it takes turns apart that a text holds.
    "messages": (lambda prompt: chat(user(prompt), reply("a")), False),
    "conversation": (lambda prompt: {"conversation": [user(prompt), reply("a")]}, False),
    "sharegpt": (lambda prompt: {"conversations": talk(prompt)}, False),
    "steerlm": (lambda prompt: {"conversations": talk(prompt), "mask": "human"}, True),
    "prompt-response": (lambda prompt: {"prompt": prompt, "response": "a"}, False),
    "prompt-completion": (lambda prompt: {"prompt": prompt, "completion": "a"}, False),
    "input-output": (lambda prompt: {"input": prompt, "output": "a"}, False),
    "alpaca": (lambda prompt: {"instruction": prompt, "output": "a"}, False),
    "preference": (lambda prompt: {"prompt": prompt, **SIDES}, False),
    "swift-preference": (lambda prompt: {**chat(user(prompt), reply("a")), "rejected_response": "b"}, False),
    "sharegpt-preference": (
        lambda prompt: {"conversations": talk(prompt)[:1], **{side: reply(text) for side, text in SIDES.items()}},
        False,
    ),
    "nemo-preference": (
        lambda prompt: {"prompt": prompt, **{f"{side}_response": text for side, text in SIDES.items()}},
        False,
    ),
    "helpsteer2": (lambda prompt: {"prompt": prompt, "response": "a", **RATED}, True),
    "ultrafeedback": (lambda prompt: {"instruction": prompt, "completions": [{"model": "m", "response": "a"}]}, False),
    "judgebench": (lambda prompt: {"question": prompt, "response_A": "a", "response_B": "b", "label": "A>B"}, False),
    "rm-bench": (lambda prompt: {"prompt": prompt, "chosen": ["a"], "rejected": ["b"]}, False),
    "prompt-responses": (lambda prompt: {"prompt": prompt, "responses": ["a", "b"]}, False),
    "llmbar": (lambda prompt: {"input": prompt, "output_1": "a", "output_2": "b", "label": 1}, False),
    "processbench": (lambda prompt: {"problem": prompt, "steps": ["a"], "label": -1}, False),
    "responses": (lambda prompt: {"input": prompt, "output": [{"type": "message", **reply("a")}]}, False),
}
NO_PROMPTS = {
    "written-out": "text",
    "gym-rollout": "responses_create_params",
    "atif": "steps",
    "arena": "conversation_a",
    "openai-preference": "preferred_output",
    "nemo-rl": "context",
    "helpsteer3": "context",
    "rmb": "conversation_input",
}
"""Shapes of scored rows whose fields no shape of prompts has."""


def talk(prompt: str) -> list[dict[str, str]]:
    return [{"from": "human", "value": prompt}, {"from": "gpt", "value": "a"}]


def test_every_shape_of_scored_rows_is_compared() -> None:
    assert sorted([*ANSWERED, *NO_PROMPTS]) == sorted(SHAPES)
    for name in NO_PROMPTS.values():
        assert not any(shape.looks_like({name: value}) for shape in PROMPT_SHAPES.values() for value in ("q", [user("q")]))


def test_a_prompt_is_the_conversation_that_is_scored() -> None:
    besides: list[dict[str, str]] = [{}, {"system": "s"}]
    for beside in besides:
        for template, (prompt, turns) in TEMPLATES.items():
            for name, (row_of, takes_apart) in ANSWERED.items():
                if name == "responses" and beside:
                    continue  # what answers in items has `instructions`; of a row with `input` alone nobody knows that
                row = {**row_of(prompt), **beside}
                scored = RowShape(name, written_out=True).requests(row)
                prompts = RowShape(detect([row], PROMPT_SHAPES).name, unanswered=True, written_out=True).requests(row)
                account_of_a_prompt(prompts)
                first = [("system", "s")] if beside and turns[0] != ("system", "s") else []
                if template != "embedded" or takes_apart:
                    assert contexts(scored) == contexts(prompts) == [[*first, *turns]]
                else:
                    assert contexts(scored) == [[*first, ("user", prompt)]]


@pytest.mark.parametrize("template", ["nemo", "llama"])
@pytest.mark.parametrize("name", ["prompt", "input"])
def test_a_prompt_in_a_template_that_does_not_end_where_the_assistant_begins_is_refused(name: str, template: str) -> None:
    row_shape = RowShape("prompt", unanswered=True, written_out=True)
    for prompt in (TEMPLATES[template][0] + "b", TEMPLATES[template][0].replace("\nq", "\nq <extra_id_2> <|eot_id|>")):
        assert refused(row_shape.requests({name: prompt})) == {CANDIDATE: Reason.WRITTEN_OUT}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"mask": "nobody"}, Reason.UNKNOWN_ROLE),
        ({"mask": "Ann", "system": "s", "system_prompt": "t"}, Reason.TWO_SYSTEM_PROMPTS),
    ],
    ids=str,
)
def test_a_mask_tells_who_asks(more: dict[str, Any], reason: Reason) -> None:
    row = {"conversations": [{"from": "Ann", "value": "q"}, {"from": "Bob", "value": "a", "label": "quality:1"}]}
    assert contexts(read_row({**row, "mask": "Ann"})) == ASKED
    assert contexts(requests(SHAPES["steerlm"], {**row, "mask": "Ann"})) == ASKED
    assert refused(read_row({**row, **more})) == {CANDIDATE: reason}


@pytest.mark.parametrize("mask", [[0, 1], 5, True, {}, None], ids=str)
def test_a_mask_that_names_nobody_is_none(mask: object) -> None:
    row = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "mask": mask}
    assert detect([row], PROMPT_SHAPES).name == detect([row]).name == "sharegpt"
    assert contexts(read_row(row)) == contexts(requests(SHAPES["sharegpt"], row)) == ASKED


# --- which shape -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["question", "problem", "query", "input"])
def test_of_two_prompts_in_a_row_the_user_says_which(other: str) -> None:
    with pytest.raises(SourceError) as caught:
        detect([{"prompt": "q", other: "r"}] * 3, PROMPT_SHAPES)
    text = str(caught.value)
    assert f"Keys seen: 'prompt', '{other}'" in text
    assert "Name the fields with --prompt-column, or choose with --format NAME" in text
    assert "one of `prompt`, `question`" in text
    assert contexts(requests(OwnColumns(other, None).shape(), {"prompt": "q", other: "r"})) == [[("user", "r")]]


@pytest.mark.parametrize("row", [{"text": "q"}, {"prompt": None}, {"prompt": 5}, {"messages": "q"}, {}])
def test_what_is_no_prompt_is_told(row: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="no known shape fits these rows") as caught:
        detect([row], PROMPT_SHAPES)
    assert "--response-column" not in str(caught.value), "there are no responses yet"
    assert all(f"\n  {name}: " in str(caught.value) for name in PROMPT_SHAPES)


# --- broken rows -----------------------------------------------------------------------------------------------------


def test_a_broken_row_has_its_reason() -> None:
    cases: list[tuple[str, dict[str, Any], Reason]] = [
        ("messages", {"messages": []}, Reason.NO_MESSAGES),
        ("messages", {}, Reason.MISSING_FIELD),
        ("messages", chat(reply("a")), Reason.NO_MESSAGES),
        ("messages", chat(user("")), Reason.EMPTY_CONTENT),
        ("messages", chat(user(None), reply("a")), Reason.EMPTY_CONTENT),
        ("messages", chat({"role": "nobody", "content": "q"}), Reason.UNKNOWN_ROLE),
        ("messages", chat("q"), Reason.WRONG_TYPE),
        ("messages", chat(user("q"), reply("a", tool_calls=[{"id": "1"}]), user("r")), Reason.TOOL_CALL),
        ("sharegpt", {}, Reason.MISSING_FIELD),
        ("sharegpt", {"conversations": []}, Reason.NO_MESSAGES),
        ("sharegpt", {"conversations": [{"from": "human"}]}, Reason.MISSING_FIELD),
        ("sharegpt", {"conversations": [{"from": "nobody", "value": "q"}]}, Reason.UNKNOWN_ROLE),
        ("alpaca", {}, Reason.MISSING_FIELD),
        ("alpaca", {"instruction": " ", "input": ""}, Reason.EMPTY_CONTENT),
        ("alpaca", {"instruction": "q", "history": "no"}, Reason.WRONG_TYPE),
        ("prompt", {}, Reason.MISSING_FIELD),
        ("prompt", {"question": None}, Reason.MISSING_FIELD),
        ("prompt", {"prompt": None}, Reason.EMPTY_CONTENT),
        ("prompt", {"prompt": " \n"}, Reason.EMPTY_CONTENT),
        ("prompt", {"prompt": "a\ud800b"}, Reason.LONE_SURROGATE),
        ("prompt", {"prompt": "q", "system": 5}, Reason.CONTENT_NOT_TEXT),
        ("prompt", {"prompt": [reply("a")]}, Reason.NO_MESSAGES),
    ]
    for shape, row, reason in cases:
        row_requests = requests(PROMPT_SHAPES[shape], row)
        assert pickle.loads(pickle.dumps(RowShape(shape, unanswered=True))).requests(row) == row_requests
        assert (row_requests.names, row_requests.requests, refused(row_requests)) == ((CANDIDATE,), (), {CANDIDATE: reason})


WORDS = st.sampled_from(["system", "user", "assistant", "human", "gpt", "", " ", "q", "a\ud800b"])
TURN = st.dictionaries(st.sampled_from(["role", "content", "from", "value", "tool_calls"]), WORDS | st.none(), max_size=4)
KEYS = ["messages", "conversations", "instruction", "input", "history", "prompt", "question", "system", "system_prompt"]
VALUES = st.none() | st.integers() | WORDS | st.lists(TURN | WORDS, max_size=4)
ROWS = VALUES | st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)


@given(ROWS, st.sampled_from([*PROMPT_SHAPES.values(), OwnColumns("prompt", None, "system").shape()]))
def test_any_row_asks_once_or_says_why_not(row: object, shape: Shape) -> None:
    row_requests = requests(shape, row)
    assert len(row_requests.names) == 1
    if row_requests.requests:
        account_of_a_prompt(row_requests)
        assert all(turn.content.strip() and turn.content.encode() for turn in row_requests.requests[0].context)
    else:
        account(row_requests)


# --- one's own columns, and principles -------------------------------------------------------------------------------


def test_a_prompt_in_a_column_of_ones_own() -> None:
    row = {"task": {"question": "q", "system": "s"}, "prompt": "another"}
    shape = OwnColumns("task.question", None, "task.system").shape()
    account_of_a_prompt(requests(shape, row))
    assert contexts(requests(shape, row)) == [[("system", "s"), ("user", "q")]]
    assert contexts(requests(shape, {"task": {"question": [user("q"), reply("a")]}})) == ASKED
    assert refused(requests(shape, {"task": {}})) == {CANDIDATE: Reason.MISSING_FIELD}
    assert (shape.looks_like(row), shape.looks_like({"prompt": "q"})) == (True, False)


@pytest.mark.parametrize("own_columns", [None, OwnColumns("prompt", None)])
def test_a_prompt_has_what_it_is_judged_by(own_columns: OwnColumns | None) -> None:
    shape = RowShape("prompt", own_columns=own_columns, columns=(("principle", "rubric.text"),), unanswered=True)
    (item,) = shape.requests({"prompt": "q", "rubric": {"text": "be brief"}}).requests
    (two,) = shape.requests({"prompt": "q", "rubric": {"text": ["be brief", "be kind"]}}).requests
    (none,) = shape.requests({"prompt": "q"}).requests
    assert (item.principles, two.principles, none.principles) == (("be brief",), ("be brief", "be kind"), ())
    assert len({request.prompt_hash for request in (item, two, none)}) == 3
    for bad in (5, "", ["be brief", 5], {"be": "brief"}):
        assert refused(shape.requests({"prompt": "q", "rubric": {"text": bad}})) == {CANDIDATE: Reason.WRONG_TYPE}
