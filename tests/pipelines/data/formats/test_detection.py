"""Which shape a file has is found by looking, and only one is found."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import Rejected, SourceError
from actors.extensions import modules_in
from actors.records import Reason
from pipelines.data.formats import (
    PROMPT_SHAPES,
    SHAPES,
    RowShape,
    Shape,
    detect,
    explain_detection,
    parse,
    requests,
    shapes,
)
from pipelines.data.formats.registry import find_unread, recognise
from tests.support.examples import examples
from tests.support.parsed_rows import account, chat, contexts, refused, reply, user

CHAT = chat(user("q"), reply("a"))
TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
RATED = dict.fromkeys(["helpfulness", "correctness", "coherence", "complexity", "verbosity"], 3)
COMPARED = {"overall_preference": -1, "domain": "code"}
NEMO = "<extra_id_0>System\n\n<extra_id_1>User\nq\n<extra_id_1>Assistant\n"
SIDES = {"chosen": "good", "rejected": "bad"}
MADE = {"type": "message", **reply([{"type": "output_text", "text": "a"}])}
RECORD = {
    "schema_version": "1.0",
    "rollout_id": "0-1",
    "invocations": [{"invocation_id": "root", "conversation": [user("q"), MADE]}],
}
STEPS = [{"step_id": 1, "source": "user", "message": "q"}, {"step_id": 2, "source": "agent", "message": "a"}]

EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("messages", CHAT),
    ("messages", CHAT | {"model_completion": "a", "reference_completion": "b"}),  # open-instruct
    ("messages", CHAT | {"uuid": "1", "license": "cc-by-4.0", "category": "math", "reasoning": "on"}),  # Nemotron v2
    ("sharegpt", {"conversations": TURNS}),
    ("sharegpt", {"conversations": TURNS, "system": "s", "kto_tag": True}),
    ("sharegpt", {"conversations": [user("q"), reply("a")]}),
    ("steerlm", {"conversations": TURNS, "mask": "human", "system": "s", "type": "VALUE_TO_TEXT"}),
    ("written-out", {"text": NEMO + "a\n<extra_id_2>", "label": [-100.0] * 9}),
    ("written-out", {"chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b"}),  # HH-RLHF
    ("written-out", {"text": "### Human: q### Assistant: a"}),  # Guanaco
    ("conversation", {"conversation": [user("q"), reply("a")], "turn": 1, "redacted": False}),  # WildChat
    (
        "arena",
        {"conversation_a": [user("q"), reply("a")], "conversation_b": [user("q"), reply("b")], "winner": "tie"},
    ),
    ("swift-preference", CHAT | {"rejected_response": "b"}),
    (
        "openai-preference",
        {
            "input": chat(user("q")) | {"tools": []},
            "preferred_output": [reply("a")],
            "non_preferred_output": [reply("b")],
        },
    ),
    ("swift-preference", CHAT | {"rejected_messages": [user("q"), reply("b")]}),
    ("prompt-response", {"prompt": "q", "response": "a"}),
    ("prompt-response", {"prompt": [user("q")], "response": reply("a"), "helpfulness": 3}),
    ("prompt-completion", {"prompt": "q", "completion": "a", "label": True}),
    ("prompt-completion", {"prompt": [user("q")], "completion": [reply("a")]}),
    ("input-output", {"input": "q", "output": "a"}),
    ("input-output", {"input": [user("q")], "output": "a", "system_prompt": "detailed thinking on", "reasoning": "on"}),
    ("alpaca", {"instruction": "q", "input": "", "output": "a"}),
    ("alpaca", {"instruction": "q", "input": "x", **SIDES}),
    ("preference", {"prompt": "q", **SIDES, "margin": 1.0}),
    (
        "preference",
        {"chosen": [user("q"), reply("good")], "rejected": [user("q"), reply("bad")], "chosen_score": {"m": 1}},
    ),
    ("preference", {"prompt": "q", "chosen": [reply("a")], "rejected": [reply("b")], **CHAT}),
    ("sharegpt-preference", {"conversations": TURNS[:1], "chosen": TURNS[1], "rejected": TURNS[1]}),
    ("sharegpt-preference", {"messages": [user("q")], "chosen": reply("good"), "rejected": reply("bad")}),
    ("nemo-preference", {"prompt": NEMO, "chosen_response": "a\n<extra_id_1>", "rejected_response": "b\n<extra_id_1>"}),
    ("nemo-preference", {"prompt": "q", "response": "a", "preference": "chosen"}),
    (
        "nemo-rl",
        {"context": [user("q")], "completions": [{"rank": rank, "completion": [reply("a")]} for rank in (0, 1)]},
    ),
    ("helpsteer2", {"prompt": "q", "response": "a", **RATED}),
    ("helpsteer2", {"prompt": "q", "response_1": "a", "response_2": "b", "preference_strength": 2, "split": "train"}),
    ("helpsteer3", {"context": [user("q")], "response1": "a", "response2": "b", **COMPARED}),
    ("helpsteer3", {"context": [user("q")], "original_response": "a", "edited_response": "b"}),
    ("helpsteer3", {"context": [user("q")], "response": "a", "principle": "p", "fulfilment": "No"}),
    ("ultrafeedback", {"instruction": "q", "models": ["m"], "completions": [{"model": "m", "response": "a"}]}),
    ("judgebench", {"question": "q", "response_A": "a", "response_B": "b", "label": "A>B"}),
    ("rm-bench", {"prompt": "q", "chosen": ["a"], "rejected": ["b"]}),
    ("prompt-responses", {"prompt": "q", "responses": ["a", "b"]}),
    ("prompt-responses", {"prompt": [user("q")], "responses": ["a"], "response": None}),
    ("rmb", {"pair_uid": "1", "conversation_input": [user("q")], "chosen": {"answer": "a"}, "reject": {"answer": "b"}}),
    (
        "rmb",
        {"bon_uid": "1", "conversation_input": [user("q")], "bon_best": {"answer": "a"}, "loser_list": [{"answer": "b"}]},
    ),
    ("llmbar", {"input": "q", "output_1": "a", "output_2": "b", "label": 1}),
    ("responses", {"input": "q", "output": [MADE]}),
    ("responses", {"input": [user("q")], "output": [{"type": "reasoning", "summary": []}, MADE], "reward": 1.0}),
    ("gym-rollout", {"responses_create_params": {"input": [user("q")]}, "response": {"output": [MADE]}, "reward": 1.0}),
    ("gym-rollout", {"ng_trajectory": RECORD, "reward": 0.0}),
    ("gym-rollout", RECORD),
    ("atif", {"schema_version": "ATIF-v1.7", "agent": {"name": "a"}, "steps": STEPS}),
    ("processbench", {"id": "math-1", "problem": "q", "steps": ["a", "b"], "label": -1, "final_answer_correct": True}),
]


def test_a_row_of_a_shape_has_that_shape_alone_and_can_be_read() -> None:
    for name, row in EXAMPLES:
        assert [shape.name for shape in recognise(row, SHAPES).shapes] == [name]
        row_requests = requests(detect([row]), row)
        assert row_requests.requests
        assert not row_requests.rejected


class Watched(dict[str, Any]):
    """A row that notes which of its fields are read."""

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(row)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read |= {key} & self.keys()
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


def fields_read(shape: Shape, row: dict[str, Any]) -> set[str]:
    watched = Watched(row)
    for turns in ("final", "all") if shape.read_turns else ("final",):
        requests(shape, watched, turns)
    return watched.read - {"principle"}  # what a response is judged by is neither prompt nor response


def test_a_shape_names_the_fields_that_it_reads() -> None:
    for name, row in EXAMPLES:
        read = fields_read(SHAPES[name], row | {"system": "s", "id": 1})
        assert read
        assert read <= RowShape(name).fields
        assert not {"id", "label", "domain", "principle", *RATED} & RowShape(name).fields


def with_turn(value: Any, content: str) -> Any:
    """A row whose conversations begin with a system turn, wherever they are in it."""
    if isinstance(value, str):
        return value.replace("System\n\n", f"System\n{content}\n")
    if isinstance(value, dict):
        return {key: with_turn(item, content) for key, item in value.items()}
    if not isinstance(value, list) or not value:
        return value
    if value[0] in (user("q"), TURNS[0]):
        named = {"from": "system", "value": content} if "from" in value[0] else {"role": "system", "content": content}
        return [named, *value]
    return [with_turn(item, content) for item in value]


TRAJECTORIES = ("responses", "gym-rollout", "atif")
"""Their formats have a place for an agent's system prompt; a row's `system` is a field of the task."""
BARE = [(name, {key: item for key, item in row.items() if key not in ("system", "system_prompt")}) for name, row in EXAMPLES]


def test_a_system_prompt_beside_the_turns_belongs_to_what_is_judged() -> None:
    for turns in ("final", "all"):
        for name, row in BARE:
            if (turns == "all" and SHAPES[name].read_turns is None) or name in TRAJECTORIES:
                continue
            first, names = ("system", "Be brief."), requests(SHAPES[name], row, turns).names
            for more in (
                {"system": "Be brief."},
                {"system_prompt": "Be brief."},
                {"system": "Be brief.", "system_prompt": "Be brief."},
            ):
                for item in (row, with_turn(row, "Be brief.")):
                    if name == "steerlm" and item is not row:
                        continue  # there, only the user and the assistant speak
                    row_requests = requests(SHAPES[name], {**item, **more}, turns)
                    assert row_requests.rejected == ()
                    assert [
                        [index for index, turn in enumerate(context) if turn == first] for context in contexts(row_requests)
                    ] == [[0]] * len(row_requests.requests)
            both = requests(SHAPES[name], {**row, "system": "Be brief.", "system_prompt": "Be long."}, turns)
            assert refused(both) == dict.fromkeys(names, Reason.TWO_SYSTEM_PROMPTS)
            inside = with_turn(row, "Be long.")
            if any(("system", "Be long.") in context for context in contexts(requests(SHAPES[name], inside, turns))):
                row_requests = requests(SHAPES[name], {**inside, "system": "Be brief."}, turns)
                assert set(refused(row_requests).values()) == {Reason.TWO_SYSTEM_PROMPTS}
                assert not row_requests.requests


ANSWERED = [user("What is 3 + 4?"), reply("7")]
APART: list[tuple[str, dict[str, Any]]] = [
    ("prompt-response", {"prompt": ANSWERED, "response": "9"}),
    ("prompt-completion", {"prompt": ANSWERED, "completion": "9"}),
    ("prompt-completion", {"prompt": ANSWERED, "completion": [reply("9")]}),
    ("prompt-completion", {"prompt": ANSWERED[:1], "completion": [reply("7"), reply("9")]}),
    ("input-output", {"input": ANSWERED, "output": "9"}),
    ("preference", {"prompt": ANSWERED, "chosen": "9", "rejected": reply("8")}),
    ("preference", {"prompt": ANSWERED, "chosen": [reply("9")], "rejected": [*ANSWERED, reply("8")]}),
    ("sharegpt-preference", {"messages": ANSWERED, "chosen": reply("9"), "rejected": reply("8")}),
    ("nemo-preference", {"prompt": ANSWERED, "chosen_response": "9", "rejected_response": "8"}),
    (
        "nemo-preference",
        {"prompt": NEMO + "7" + NEMO[-len("\n<extra_id_1>Assistant\n") :], "response": "9", "preference": "chosen"},
    ),
    ("nemo-rl", {"context": ANSWERED, "completions": [{"rank": 0, "completion": [reply("9")]}]}),
    ("helpsteer2", {"prompt": ANSWERED, "response": "9", **RATED}),
    ("helpsteer3", {"context": ANSWERED, "response1": "9", "response2": "8", **COMPARED}),
    ("helpsteer3", {"context": ANSWERED, "response": "9", "principle": "p"}),
    ("ultrafeedback", {"instruction": ANSWERED, "completions": [{"response": "9"}]}),
    ("judgebench", {"question": ANSWERED, "response_A": "9", "response_B": "8"}),
    ("rm-bench", {"prompt": ANSWERED, "chosen": ["9"], "rejected": ["8"]}),
    ("prompt-responses", {"prompt": ANSWERED, "responses": ["9"]}),
    (
        "openai-preference",
        {"input": {"messages": ANSWERED}, "preferred_output": [reply("9")], "non_preferred_output": "8"},
    ),
    ("rmb", {"conversation_input": ANSWERED, "chosen": {"answer": "9"}, "reject": {"answer": "8"}}),
    ("llmbar", {"input": ANSWERED, "output_1": "9", "output_2": "8"}),
    ("processbench", {"problem": ANSWERED, "steps": ["9"]}),
    ("responses", {"input": ANSWERED, "output": [MADE]}),
    ("gym-rollout", {"responses_create_params": {"input": ANSWERED}, "response": {"output": [MADE]}}),
]
TOLD_WHOLE = {"atif", "messages", "sharegpt", "steerlm", "written-out", "conversation", "arena", "swift-preference"}
"""Their turns are one list."""
ENDING_WITH_THE_USER = {"alpaca"}
"""Their prompt can't end with anyone else."""


def test_every_shape_has_its_examples_and_a_name_of_its_own() -> None:
    assert {name for name, _ in EXAMPLES} == set(SHAPES)
    assert {name for name, _ in APART} == SHAPES.keys() - TOLD_WHOLE - ENDING_WITH_THE_USER
    assert {name for name, _ in PROMPTS} == PROMPT_SHAPES.keys()
    modules = modules_in(shapes.__name__, shapes.__path__)
    names = [shape.name for module in modules for shape in getattr(module, "SHAPES", ())]
    assert sorted(names) == list(SHAPES)


def test_nobody_is_judged_after_another_answer_to_the_prompt() -> None:
    for name, row in APART:
        for more in ({}, {"system": "Be brief."}):
            request = RowShape(name, written_out=True).requests({**row, **more})
            assert set(refused(request).values()) == {Reason.WRONG_TYPE}
            assert not request.requests


PROMPTS: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": [user("q")]}),
    ("conversation", {"conversation": [user("q")]}),
    ("sharegpt", {"conversations": TURNS[:1]}),
    ("steerlm", {"conversations": TURNS[:1], "mask": "human"}),
    ("alpaca", {"instruction": "q"}),
    ("prompt", {"prompt": [user("q")]}),
]


def test_a_system_prompt_beside_a_prompt_belongs_to_what_is_asked() -> None:
    for name, row in PROMPTS:
        for key in ("system", "system_prompt"):
            shape = PROMPT_SHAPES[name]
            assert contexts(requests(shape, {**row, key: "s"})) == [[("system", "s"), ("user", "q")]]
            inside = with_turn(row, "t")
            if requests(shape, inside).requests and inside != row:
                assert refused(requests(shape, {**inside, key: "s"})) == {"candidate": Reason.TWO_SYSTEM_PROMPTS}


def test_a_shape_of_prompts_names_the_fields_that_it_reads() -> None:
    for name, row in PROMPTS:
        read = fields_read(PROMPT_SHAPES[name], row | {"system": "s", "id": 1})
        assert read
        assert read <= RowShape(name, unanswered=True).fields
        assert not {"id", "answer"} & RowShape(name, unanswered=True).fields


WORDS = [
    "",
    " ",
    "a\ud800",
    "user",
    "system",
    "chosen",
    NEMO,
    "a\n<extra_id_1>User\nr\n<extra_id_1>Assistant\nb",
    "<|eot_id|>",
]
SPOILT = (
    st.none() | st.integers() | st.booleans() | st.sampled_from(WORDS) | st.sampled_from([[], {}, ["q", 5], [["q", "a"]]])
)


def copied(value: Any) -> Any:
    """A copy in which nothing is shared."""
    return json.loads(json.dumps(value))


@st.composite
def damaged_rows(draw: st.DrawFn) -> dict[str, Any]:
    """A row of one shape, or of two at once, with something in it replaced, taken out or doubled."""
    rows = draw(st.lists(st.sampled_from([row for _, row in EXAMPLES]), min_size=1, max_size=2))
    row: dict[str, Any] = copied({key: value for row in rows for key, value in row.items()})
    for _ in range(draw(st.integers(0, 3))):
        damage(draw, row)
    return row


def damage(draw: st.DrawFn, place: Any) -> None:
    """Change one thing in the object or list, or further inside."""
    if not place:
        return
    key = draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
    if isinstance(place[key], dict | list) and draw(st.integers(0, 3)):
        damage(draw, place[key])
        return
    match draw(st.sampled_from(["replace", "remove", "double"])):
        case "replace":
            place[key] = copied(draw(SPOILT))
        case "remove":
            del place[key]
        case "double" if isinstance(place, list):
            place.append(copied(place[key]))


@examples(300)
@given(damaged_rows())
def test_no_damaged_row_fails_and_no_response_vanishes(row: dict[str, Any]) -> None:
    for shape in SHAPES.values():
        assert isinstance(shape.looks_like(row), bool)
        account(requests(shape, row))
        if shape.read_turns:
            account(requests(shape, row, "all"))
    with suppress(SourceError):
        assert detect([row]).name in SHAPES


def test_a_response_beside_those_that_a_shape_reads_is_not_passed_over() -> None:
    lists: list[dict[str, Any]] = [{"responses": ["x", "y"]}, {"completions": [{"text": "x"}]}]
    singles: list[dict[str, Any]] = [{"bad_rejected": "x"}, {"REJECTED_text": [reply("x")]}, {"output_3": "x"}]
    for name, row in EXAMPLES:
        for others in [*lists, *singles] if name != "prompt-responses" else ():
            if not others.keys() - row.keys():
                continue
            recognised = recognise(others | row, SHAPES)
            if others in lists and len(requests(SHAPES[name], row).names) > 1:
                # The candidates that the pair was made of (Magpie DPO).
                assert [shape.name for shape in recognised.shapes] == [name]
                continue
            assert recognised.shapes == () or len(recognised.shapes) > 1
            with pytest.raises(SourceError, match=r"another response|more than one shape"):
                detect([others | row])


PAIR = {"prompt": "q", "chosen": "a", "rejected": "b"}
TURNS_BEFORE = [user("x"), reply("y")]
BATTLE = {"conversation_a": TURNS_BEFORE, "conversation_b": TURNS_BEFORE}


@pytest.mark.parametrize(
    ("row", "field", "shape"),
    [
        ({"prompt": "q", **{f"response_{number}": str(number) for number in range(1, 5)}}, "response_3", "helpsteer2"),
        (PAIR | {"rejected_2": "c"}, "rejected_2", "preference"),
        (PAIR | {"context": TURNS_BEFORE}, "context", "preference"),
        ({"prompt": "q", "response": "a", "history": [["x", "y"]]}, "history", "prompt-response"),
(BATTLE | {"conversation_c": [user("x"), reply("z")]}, "conversation_c", "arena"),
        (CHAT | {"chosen_response": "c", "rejected_response": "b"}, "chosen_response", "swift-preference"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_message_names_what_would_be_passed_over_and_the_shape(row: dict[str, Any], field: str, shape: str) -> None:
    with pytest.raises(SourceError, match=rf"under '{field}'.* --format {shape}$"):
        detect([row])


def test_turns_before_a_prompt_are_not_passed_over_for_a_policy() -> None:
    with pytest.raises(SourceError, match="under 'history'"):
        detect([{"prompt": "q", "history": [["x", "y"]]}], PROMPT_SHAPES)
    row = {"question": "q", "choices": ["a", "b"], "response": "a"}
    shape = detect([row], PROMPT_SHAPES)
    assert find_unread(shape, row, requests(shape, row)) == ["choices"]


@pytest.mark.parametrize(("order", "reasons"), [(1, {}), (2, dict.fromkeys(BATTLE, Reason.CONTEXT_GAP))])
def test_a_battles_later_vote_is_not_judged_as_its_beginning(order: int, reasons: dict[str, Reason]) -> None:
    assert refused(requests(SHAPES["arena"], BATTLE | {"evaluation_order": order, "winner": "tie"})) == reasons


def test_two_sides_are_no_typing_errors_for_the_same_field() -> None:
    with pytest.raises(SourceError) as error:
        detect([{"messages_a": TURNS_BEFORE, "messages_b": TURNS_BEFORE}])
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize(
    "beside",
    [
        {"response_model": "m", "rejected_reason": "too long", "rejected": False, "chosen_score": 1.0},
        {"rejected": None, "completions": [], "responses": "", "rejected_response": float("nan")},
        {"answer": "7", "answers": ["7"], "reference": "7"},
    ],
    ids=str,
)
def test_what_only_sounds_like_a_response_is_none(beside: dict[str, Any]) -> None:
    assert detect([CHAT | beside] * 3) is SHAPES["messages"]


def test_what_only_resembles_a_shape_has_none() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "1 2 3"},
        {"text": "About <extra_id_0>System"},
        {"prompt": "q"},
        {"conversations": ["q", "a"]},
        {"context": "q", "response1": "a", "response2": "b"},
        {"context": [user("q")], "response": "a"},
        {"instruction": "q", "completions": ["a", "b"]},
        {"input": "q", "output": 5},
        {"instruction": "q", "input": "x"},
        {"prompt": "q", "responses": []},
        {"prompt": "q", "responses": [reply("a")]},
        {"conversation_input": "q", "chosen": {"answer": "a"}, "reject": {"answer": "b"}},
        {"conversation_input": [user("q")], "chosen": {"answer": "a"}},
        {"conversation_input": [user("q")], "bon_best": {"answer": "a"}},
        {"input": "q", "output_1": "a"},
        {"instruction": "q", "input": "x", "output_1": "a", "output_2": "b"},
    ]
    for row in rows:
        with pytest.raises(SourceError, match="no known shape"):
            detect([row])


def test_lines_that_are_no_json_are_called_that_and_not_another_shape() -> None:
    def parsed(line: bytes) -> object:
        try:
            return parse(line)
        except Rejected as error:
            return error

    with pytest.raises(SourceError) as refusal:
        detect([parsed(b'{"prompt": "q"'), parsed(b"[1]")])
    assert str(refusal.value).startswith(
        "2 of the 2 rows looked at can't be read as JSON objects, the first one: broken_json: Expecting ',' delimiter"
    )
    with pytest.raises(SourceError, match=r"no known shape .*\. 1 of the 2 rows .* not_an_object: .*Keys seen: 'a'"):
        detect([parsed(b"[1]"), {"a": 1}])


def test_a_user_hears_what_was_found_and_why() -> None:
    rows = [*[CHAT] * 48, None, {"messages": None}]
    assert explain_detection(detect(rows), rows) == "messages: 48 of 50 rows have `messages`, a list of {role, content}"
    assert explain_detection(SHAPES["messages"], []) == "messages: there are no rows to look at"


def _raising(row: Any) -> Any:
    return row["ticket"]


def test_a_plugins_shape_that_raises_harms_its_own_rows_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chats = [chat(user("q"), reply("a"))] * 3
    shape = Shape("ticket", "tickets", "`ticket`", _raising, _raising)
    monkeypatch.setattr(SHAPES, "_loaded", ({**SHAPES, "ticket": shape}, {"ticket": "acme 0.1"}))
    assert detect(chats).name == "messages"
    assert [record.getMessage() for record in caplog.records] == [
        "the shape ticket of acme 0.1 raised KeyError: 'ticket'; it fits no such row"
    ]
    (rejected,) = requests(shape, {"id": 1}).rejected
    assert (rejected.reason, rejected.detail) == (
        Reason.SHAPE_FAILED,
        "the shape ticket of acme 0.1 raised KeyError: 'ticket'",
    )
    monkeypatch.setattr(SHAPES, "_loaded", ({**SHAPES, "ticket": shape}, {}))  # ours: our fault
    for fails in (lambda: detect(chats), lambda: requests(shape, {"id": 1})):
        with pytest.raises(KeyError):
            fails()
