"""Rows of every shape, good and bad, and the bytes that they come from."""

import json
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.errors import Rejected, SettingsError, SourceError
from actors.records import Reason
from pipelines.data.formats import SHAPES, Shape, detect, parse, requests
from pipelines.data.formats.lines import MAX_DEPTH
from tests.support.parsed_rows import chat, contexts, judged, refused, reply, shared_data, user

MESSAGES, PROMPT_RESPONSE, PREFERENCE = SHAPES["messages"], SHAPES["prompt-response"], SHAPES["preference"]
JUDGEBENCH, RM_BENCH = SHAPES["judgebench"], SHAPES["rm-bench"]
SURROGATE = "a\ud800b"

any_speed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reason_of(line: bytes) -> Reason:
    with pytest.raises(Rejected) as caught:
        parse(line)
    return caught.value.reason


# --- bytes ---------------------------------------------------------------------------------------------------------


def test_a_line_is_an_object() -> None:
    assert parse(b'{"a": [1, null, "\xc3\xa9"]}') == {"a": [1, None, "é"]}


@pytest.mark.parametrize("line", [b'\xef\xbb\xbf{"a": 1}', b'{"a": 1}\r\n', b'  {"a": 1}\n'])
def test_byte_order_mark_and_line_ends_are_let_pass(line: bytes) -> None:
    assert parse(line) == {"a": 1}


def test_integers_are_exact_and_odd_numbers_pass() -> None:
    row = parse(b'{"n": %d, "x": NaN, "y": -Infinity, "n2": 1, "n2": 2}' % 2**70)
    assert row["n"] == 2**70
    assert row["x"] != row["x"]
    assert row["n2"] == 2


def test_a_bad_line_has_its_reason() -> None:
    cases: list[tuple[bytes, Reason]] = [
        (b'{"a": "\xff"}', Reason.NOT_UTF8),
        (b'{"a": "\xed\xa0\x80"}', Reason.NOT_UTF8),
        ('{"a": 1}'.encode("utf-16"), Reason.NOT_UTF8),
        ('{"a": 1}'.encode("utf-16-le"), Reason.BROKEN_JSON),
        (b"", Reason.BROKEN_JSON),
        (b'{"a": 1', Reason.BROKEN_JSON),
        (b'{"a": 1} {}', Reason.BROKEN_JSON),
        (b'{"a": "\t"}', Reason.BROKEN_JSON),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}', Reason.BROKEN_JSON),
        (b'{"a": ' + b"1" * 5000 + b"}", Reason.BROKEN_JSON),
        (b"[]", Reason.NOT_AN_OBJECT),
        (b"null", Reason.NOT_AN_OBJECT),
        (b'"text"', Reason.NOT_AN_OBJECT),
        (b"[" * 1_000_000, Reason.TOO_DEEP),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, Reason.TOO_DEEP),
    ]
    for line, reason in cases:
        assert reason_of(line) is reason


def test_the_depth_limit_is_exact_and_counts_levels_not_brackets() -> None:
    assert parse(b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH)
    assert reason_of(b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)) is Reason.TOO_DEEP
    assert parse(b'{"a": "' + b"[" * 1000 + b'", "b": [' + b"{}," * 1000 + b"[]]}")


def test_a_rejected_line_is_not_quoted() -> None:
    with pytest.raises(Rejected) as caught:
        parse(b'{"secret": hunter2}')
    assert "hunter2" not in str(caught.value)


@any_speed
@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_parsed_or_rejected(line: bytes) -> None:
    with suppress(Rejected):
        assert isinstance(parse(line), dict)


# --- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prompt-response", "alpaca", "helpsteer2"])
def test_several_texts_are_not_one_response(name: str) -> None:
    """Two answers would be judged as one, end to end."""
    both = ["good", "bad"]
    row = {"prompt": "q", "instruction": "q", "response": both, "output": both}
    assert set(refused(requests(SHAPES[name], row)).values()) == {Reason.WRONG_TYPE}


def test_what_is_not_text_has_its_reason() -> None:
    cases: list[tuple[object, Reason]] = [
        (None, Reason.EMPTY_CONTENT),
        ("", Reason.EMPTY_CONTENT),
        (" \n\t\u3000", Reason.EMPTY_CONTENT),
        ([], Reason.EMPTY_CONTENT),
        ([{"type": "text", "text": " "}], Reason.EMPTY_CONTENT),
        ([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}], Reason.CONTENT_NOT_TEXT),
        ([{"type": "text"}], Reason.CONTENT_NOT_TEXT),
        ([["x"]], Reason.CONTENT_NOT_TEXT),
        (5, Reason.CONTENT_NOT_TEXT),
        (float("nan"), Reason.CONTENT_NOT_TEXT),
        ({"text": "x"}, Reason.CONTENT_NOT_TEXT),
        (SURROGATE, Reason.LONE_SURROGATE),
        (["\ud83d", "\ude00"], Reason.LONE_SURROGATE),
    ]
    for content, reason in cases:
        assert refused(requests(MESSAGES, chat(user("q"), reply(content)))) == {"final": reason}
        assert refused(requests(MESSAGES, chat(user(content), reply("a")))) == {"final": reason}


def test_a_lone_surrogate_that_nobody_judges_is_nobodys_business() -> None:
    row = parse(rb'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "x": "\ud800"}')
    assert judged(requests(MESSAGES, row)) == {"final": "a"}


# --- messages ------------------------------------------------------------------------------------------------------


def test_the_final_turn_is_judged_in_its_context() -> None:
    row = chat({"role": "developer", "content": "s"}, user("q"), {"role": "function", "content": "t"}, reply("a"))
    row_requests = requests(MESSAGES, row)
    assert contexts(row_requests) == [[("system", "s"), ("user", "q"), ("tool", "t")]]
    assert judged(row_requests) == {"final": "a"}
    assert row_requests.names == ("final",)


def test_a_broken_conversation_is_one_outcome() -> None:
    cases: list[tuple[object, Reason]] = [
        ({}, Reason.MISSING_FIELD),
        ({"messages": None}, Reason.NO_MESSAGES),
        ({"messages": []}, Reason.NO_MESSAGES),
        ({"messages": "hi"}, Reason.WRONG_TYPE),
        ({"messages": {"role": "user"}}, Reason.WRONG_TYPE),
        (chat("hi"), Reason.WRONG_TYPE),
        (chat({"role": 5, "content": "q"}), Reason.WRONG_TYPE),
        (chat({"content": "q"}), Reason.MISSING_FIELD),
        (chat({"role": "user"}), Reason.MISSING_FIELD),
        (chat({"role": "nobody", "content": "q"}), Reason.UNKNOWN_ROLE),
        (chat(user("q")), Reason.NO_FINAL_ASSISTANT),
        ("not an object", Reason.NOT_AN_OBJECT),
    ]
    for turns in ("final", "all"):
        for row, reason in cases:
            row_requests = requests(MESSAGES, row, "all" if turns == "all" else "final")
            assert (row_requests.names, refused(row_requests)) == (("final",), {"final": reason})


@pytest.mark.parametrize(
    "key", [{"tool_calls": [{"id": "1"}]}, {"function_call": {"name": "f"}}, {"function_calls": "f(1)"}]
)
def test_a_tool_call_is_refused_even_without_content(key: dict[str, object]) -> None:
    assert refused(requests(MESSAGES, chat(user("q"), {"role": "assistant", **key}))) == {"final": Reason.TOOL_CALL}


def test_all_turns_are_judged_each_in_its_own_context() -> None:
    row_requests = requests(MESSAGES, chat(user("q"), reply("a"), user("r"), reply("b"), user("bye")), "all")
    assert judged(row_requests) == {"turn[1]": "a", "turn[3]": "b"}
    assert contexts(row_requests) == [[("user", "q")], [("user", "q"), ("assistant", "a"), ("user", "r")]]


def test_a_bad_turn_spoils_what_follows_it_and_nothing_before() -> None:
    row_requests = requests(MESSAGES, chat(user("q"), reply("a"), user(None), reply("b"), user("r"), reply("c")), "all")
    assert judged(row_requests) == {"turn[1]": "a"}
    assert refused(row_requests) == {"turn[3]": Reason.EMPTY_CONTENT, "turn[5]": Reason.EMPTY_CONTENT}
    assert row_requests.names == ("turn[1]", "turn[3]", "turn[5]")


def test_a_response_to_nothing_is_refused() -> None:
    row_requests = requests(MESSAGES, chat(reply("hello"), user("q"), reply("a")), "all")
    assert refused(row_requests) == {"turn[0]": Reason.NO_MESSAGES}
    assert judged(row_requests) == {"turn[2]": "a"}


def test_a_conversation_of_many_turns_stays_small() -> None:
    row_requests = requests(MESSAGES, chat(*[user("q"), reply("a")] * 20_000), "all")
    assert len(row_requests.names) == 20_000
    assert set(refused(row_requests).values()) == {Reason.RECORD_TOO_LARGE}
    assert len(row_requests.requests) == 2048


def test_only_conversations_have_turns() -> None:
    shapes: list[Shape] = [shape for shape in SHAPES.values() if not shape.read_turns]
    for shape in shapes:
        with pytest.raises(
            SettingsError, match="atif, conversation, gym-rollout, messages, responses, sharegpt, steerlm, written-out"
        ):
            requests(shape, {}, "all")


# --- prompt-response -----------------------------------------------------------------------------------------------


def test_a_bad_prompt_or_response() -> None:
    cases: list[tuple[dict[str, object], Reason]] = [
        ({"response": "a"}, Reason.MISSING_FIELD),
        ({"prompt": "q"}, Reason.MISSING_FIELD),
        ({"prompt": None, "response": "a"}, Reason.EMPTY_CONTENT),
        ({"prompt": "q", "response": 5}, Reason.CONTENT_NOT_TEXT),
        ({"prompt": [], "response": "a"}, Reason.NO_MESSAGES),
        ({"prompt": ["q"], "response": "a"}, Reason.WRONG_TYPE),
        ({"prompt": "q", "response": user("a")}, Reason.NO_FINAL_ASSISTANT),
        ({"prompt": "q", "response": "a", "system": 5}, Reason.CONTENT_NOT_TEXT),
    ]
    for row, reason in cases:
        assert refused(requests(PROMPT_RESPONSE, row)) == {"final": reason}


@pytest.mark.parametrize(
    ("shape", "row", "detail"),
    [
        ("prompt-response", {"prompt": "q", "response": 5}, "response: a number, 5, where text is expected"),
        ("prompt-response", {"prompt": ["q"], "response": "a"}, "prompt: text, 'q' where a message is expected"),
        ("preference", {"prompt": "q", "chosen": 5, "rejected": "b"}, "a number, 5, where text is expected"),
        ("openai-preference", {"input": {"messages": 5}}, "input: a number, 5 where a list is expected"),
        ("rm-bench", {"prompt": "q", "chosen": [5], "rejected": ["b"]}, "a number, 5, where text is expected"),
        ("messages", {"messages": 5}, "messages: a number, 5 where a list is expected"),
    ],
)
def test_what_is_wrong_names_the_field_and_what_it_holds(shape: str, row: dict[str, object], detail: str) -> None:
    assert requests(SHAPES[shape], row).rejected[0].detail == detail


# --- preference ----------------------------------------------------------------------------------------------------

PAIR = {"chosen": "good", "rejected": "bad"}


def test_every_form_of_a_pair_is_the_same_request() -> None:
    rows: list[dict[str, object]] = [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": [user("q")], "chosen": "good", "rejected": reply("bad")},
        {"prompt": [user("q")], "chosen": [reply("good")], "rejected": [reply("bad")]},
        {"prompt": "q", "chosen": [reply("good")], "rejected": [reply("bad")]},
        {"chosen": [user("q"), reply("good")], "rejected": [user("q"), reply("bad")]},
        {"prompt": None, "chosen": [user("q"), reply("good")], "rejected": [user("q"), reply("bad")]},
        {"prompt": [user("q")], "chosen": [user("q"), reply("good")], "rejected": [user("q"), reply("bad")]},
        {
            "prompt": "q",
            "chosen": [user("q"), reply("good")],
            "rejected": [user("q"), reply("bad")],
            "messages": [user("q")],
        },
    ]
    for row in rows:
        row_requests = requests(detect([row]), row)
        assert contexts(row_requests) == [[("user", "q")]]
        assert judged(row_requests) == PAIR
        assert row_requests.names == ("chosen", "rejected")


def test_a_whole_conversation_is_judged_under_its_only_system_prompt() -> None:
    turns = [{"role": "system", "content": "s"}, user("q"), reply("a"), user("r")]
    before = [[("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "r")]]
    row = {"prompt": "r", "chosen": [*turns, reply("good")], "rejected": [*turns, reply("bad")], "system": "s"}
    assert contexts(requests(PREFERENCE, row)) == before
    other = requests(PREFERENCE, row | {"system": "other"})
    assert refused(other) == dict.fromkeys(("chosen", "rejected"), Reason.TWO_SYSTEM_PROMPTS)


def test_what_follows_a_prompt_may_have_several_turns() -> None:
    row = {
        "prompt": "q",
        "chosen": [reply("a"), user("r"), reply("good")],
        "rejected": [reply("bad")],
        "system": "s",
    }
    row_requests = requests(PREFERENCE, row)
    asks = [("system", "s"), ("user", "q")]
    assert contexts(row_requests) == [[*asks, ("assistant", "a"), ("user", "r")], asks]
    assert judged(row_requests) == PAIR


def test_a_prompt_may_end_with_the_assistant_where_the_user_goes_on() -> None:
    row = {
        "prompt": [user("q"), reply("a")],
        "chosen": [user("r"), reply("good")],
        "rejected": [user("r"), reply("bad")],
    }
    row_requests = requests(PREFERENCE, row)
    assert contexts(row_requests) == [[("user", "q"), ("assistant", "a"), ("user", "r")]]
    assert judged(row_requests) == PAIR


SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("prompt", "before"),
    [
        ([user("r")], [user("q"), reply("a"), user("r")]),
        ([user("q"), reply("a"), user("r")], [user("r")]),
        ([user("q")], [SYSTEM, user("r")]),
    ],
    ids=str,
)
def test_turns_that_cant_follow_a_prompt_are_refused(prompt: list[object], before: list[object]) -> None:
    """They are the conversation again, told in other words: judged behind the prompt, it would be asked twice."""
    answered = [*before, reply("good")]
    pair = requests(PREFERENCE, {"prompt": prompt, "chosen": answered, "rejected": [reply("bad")]})
    assert (refused(pair), judged(pair)) == ({"chosen": Reason.WRONG_TYPE}, {"rejected": "bad"})
    for shape, row in (
        ("prompt-completion", {"prompt": prompt, "completion": answered}),
        ("input-output", {"input": prompt, "output": answered}),
        ("nemo-rl", {"context": prompt, "completions": [{"rank": 0, "completion": answered}]}),
    ):
        assert set(refused(requests(SHAPES[shape], row)).values()) == {Reason.WRONG_TYPE}, shape


@pytest.mark.parametrize(
    ("prompt", "before", "asked_once"),
    [
        ([user("q ")], [user("q")], [("user", "q")]),
        ([user("q")], [SYSTEM, user("q")], [("system", "s"), ("user", "q")]),
        ([SYSTEM, user("q")], [user("q")], [("system", "s"), ("user", "q")]),
    ],
)
def test_a_conversation_that_repeats_the_prompt_but_for_white_space_and_the_system_prompt_is_asked_once(
    prompt: list[object], before: list[object], asked_once: list[tuple[str, str]]
) -> None:
    answered = [*before, reply("good")]
    for shape, row in (
        ("preference", {"prompt": prompt, "chosen": answered, "rejected": [*before, reply("bad")]}),
        ("prompt-completion", {"prompt": prompt, "completion": answered}),
        ("nemo-rl", {"context": prompt, "completions": [{"rank": 0, "completion": answered}]}),
    ):
        assert contexts(requests(SHAPES[shape], row)) == [asked_once], shape


@pytest.mark.parametrize("before", [[user("Hello")], [SYSTEM, user("Hello")], [user("Be terse."), reply("Be terse. Why?")]])
def test_a_conversation_that_does_not_hold_the_prompt_of_text_beside_it_is_refused(before: list[object]) -> None:
    """What the prompt asks wouldn't be asked."""
    row = {
        "prompt": "Be terse. Why?",
        "chosen": [*before, user("x"), reply("good")],
        "rejected": [*before, reply("bad")],
    }
    assert refused(requests(PREFERENCE, row)) == dict.fromkeys(("chosen", "rejected"), Reason.WRONG_TYPE)


def test_a_conversation_is_whole_where_the_prompt_of_text_is_a_turn_of_it() -> None:
    prompts: list[object] = ["r", "\nr", "", None]
    befores: list[list[object]] = [
        [user("r ")],
        [user("q"), reply("a"), user("r")],
        [user("r"), reply("a"), user("q")],
        [SYSTEM | {"content": "r"}, user("q")],
    ]
    for before in befores:
        for prompt in prompts:
            row = {"prompt": prompt, "chosen": [*before, reply("good")], "rejected": [*before, reply("bad")]}
            row_requests = requests(PREFERENCE, row)
            assert (judged(row_requests), len(row_requests.requests[0].context)) == (PAIR, len(before))


@pytest.mark.parametrize("content", ["q ", [{"type": "text", "text": "q"}], "", None])
def test_a_conversation_is_whole_beside_a_prompt_of_one_message(content: object) -> None:
    row = {
        "prompt": {"role": "user", "content": content},
        "chosen": [user("q"), reply("good")],
        "rejected": [user("q"), reply("bad")],
    }
    row_requests = requests(PREFERENCE, row)
    assert (judged(row_requests), contexts(row_requests)) == (PAIR, [[("user", "q")]])
    for other, reason in ((user("r"), Reason.WRONG_TYPE), ({"text": "q"}, Reason.CONTENT_NOT_TEXT)):
        assert set(refused(requests(PREFERENCE, {**row, "prompt": other})).values()) == {reason}


def test_a_response_that_begins_with_its_prompt_is_the_whole_conversation() -> None:
    prompts: list[object] = ["q", [user("q")], [user(" q\n")], [SYSTEM, user("q")], [user("q"), reply("a")]]
    for shape in ("prompt-completion", "input-output"):
        for prompt in prompts:
            asks, answers = {"prompt-completion": ("prompt", "completion"), "input-output": ("input", "output")}[shape]
            row_requests = requests(SHAPES[shape], {asks: prompt, answers: [user("q"), reply("a")]})
            systems = [("system", "s")] if "system" in str(prompt) else []
            assert (contexts(row_requests), judged(row_requests)) == ([[*systems, ("user", "q")]], {"final": "a"})


@pytest.mark.parametrize("shape", ["prompt-completion", "input-output"])
@pytest.mark.parametrize(
    "repeated", [[reply("b"), user("r"), reply("a")], [user("r"), reply("b"), user("q"), reply("a")][2:]]
)
def test_a_prompt_that_is_answered_is_not_asked_again(shape: str, repeated: list[object]) -> None:
    asks, answers = {"prompt-completion": ("prompt", "completion"), "input-output": ("input", "output")}[shape]
    row = {asks: [user("r"), reply("x"), user("q"), reply("b")], answers: repeated}
    assert refused(requests(SHAPES[shape], row)) == {"final": Reason.WRONG_TYPE}


def test_a_bad_side_leaves_the_other() -> None:
    cases: list[tuple[Mapping[str, object], dict[str, Reason]]] = [
        ({"prompt": "q", "chosen": "good"}, {"rejected": Reason.MISSING_FIELD}),
        ({"prompt": "q", "chosen": "good", "rejected": ""}, {"rejected": Reason.EMPTY_CONTENT}),
        ({"prompt": "q", "chosen": "good", "rejected": [user("r")]}, {"rejected": Reason.NO_FINAL_ASSISTANT}),
        ({"prompt": "q", "chosen": "good", "rejected": ["bad"]}, {"rejected": Reason.WRONG_TYPE}),
        ({"chosen": [user("q"), reply("good")], "rejected": [reply("bad")]}, {"rejected": Reason.NO_MESSAGES}),
        (PAIR, {"chosen": Reason.MISSING_FIELD, "rejected": Reason.MISSING_FIELD}),
        ({"prompt": SURROGATE, **PAIR}, {"chosen": Reason.LONE_SURROGATE, "rejected": Reason.LONE_SURROGATE}),
    ]
    for row, reasons in cases:
        row_requests = requests(PREFERENCE, row)
        assert refused(row_requests) == reasons
        assert judged(row_requests) == {name: text for name, text in PAIR.items() if name not in reasons}


# --- benchmarks ----------------------------------------------------------------------------------------------------


def test_rm_bench_names_its_responses_by_position() -> None:
    row_requests = requests(RM_BENCH, {"prompt": "q", "chosen": ["a", "a", "c"], "rejected": ["x", None, "z"]})
    assert len(row_requests.requests) == 1
    assert judged(row_requests) == {
        "chosen[0]": "a",
        "chosen[1]": "a",
        "chosen[2]": "c",
        "rejected[0]": "x",
        "rejected[2]": "z",
    }
    assert refused(row_requests) == {"rejected[1]": Reason.EMPTY_CONTENT}
    assert row_requests.names == ("chosen[0]", "chosen[1]", "chosen[2]", "rejected[0]", "rejected[1]", "rejected[2]")


@pytest.mark.parametrize(
    ("rejected", "names", "reasons"),
    [
        ("x", ["chosen[0]", "rejected"], {}),
        ([], ["chosen[0]", "rejected"], {"rejected": Reason.EMPTY_CONTENT}),
        (5, ["chosen[0]", "rejected"], {"rejected": Reason.CONTENT_NOT_TEXT}),
        ([{}], ["chosen[0]", "rejected[0]"], {"rejected[0]": Reason.CONTENT_NOT_TEXT}),
    ],
)
def test_a_side_of_rm_bench_may_be_odd(rejected: object, names: list[str], reasons: dict[str, Reason]) -> None:
    row_requests = requests(RM_BENCH, {"prompt": "q", "chosen": ["a"], "rejected": rejected})
    assert (list(row_requests.names), refused(row_requests)) == (names, reasons)


# --- detection -----------------------------------------------------------------------------------------------------

CHAT = chat(user("q"), reply("a"))
SINGLE = {"prompt": "q", "response": "a"}


def test_a_few_bad_rows_do_not_defeat_detection() -> None:
    assert detect([CHAT, CHAT, None, {"messages": None}, 5, CHAT]) is MESSAGES
    assert detect([CHAT] * 19 + [SINGLE]) is MESSAGES


@pytest.mark.parametrize("rows", [[CHAT, SINGLE], [CHAT] * 8 + [SINGLE] * 2, [CHAT | SINGLE]])
def test_two_shapes_are_for_the_user_to_choose_from(rows: list[object]) -> None:
    with pytest.raises(SourceError, match=r"more than one shape: .+ \(\d+ of \d+ rows\), .+--format NAME"):
        detect(rows)


@pytest.mark.parametrize(
    "row",
    [
        {"dialogue": [{"from": "human", "value": "q"}]},
        PAIR,
        {"prompt": "q", "chosen": [], "rejected": "b"},
        {"messages": [["human", "q"]]},
    ],
)
def test_no_shape_names_the_keys_seen_and_the_shapes_known(row: dict[str, object]) -> None:
    with pytest.raises(SourceError) as caught:
        detect([row, "broken"])
    assert all(word in str(caught.value) for word in [*row, *SHAPES, "response_A", "--format NAME"])


def test_a_sample_without_a_shape_is_refused() -> None:
    all_rows: list[list[object]] = [[], [None], [{}], [CHAT, {}, {}], [{SURROGATE: 1}], [{str(n): n for n in range(99)}]]
    for rows in all_rows:
        with pytest.raises(SourceError) as caught:
            detect(rows)
        assert str(caught.value).isascii()


# --- real data -----------------------------------------------------------------------------------------------------


def test_judgebench_as_published() -> None:
    rows = [parse(line) for line in (shared_data() / "judgebench" / "gpt-4o.jsonl").read_bytes().splitlines()]
    assert detect(rows) is JUDGEBENCH
    row_requests = [requests(JUDGEBENCH, row) for row in rows]
    assert sum(len(row.names) for row in row_requests) == 700
    assert not any(row.rejected for row in row_requests)
    assert judged(row_requests[0]).get("B") == rows[0]["response_B"]


@pytest.mark.parametrize(("name", "count"), [("chat", 129), ("code", 228)])
def test_rm_bench_as_published(name: str, count: int) -> None:
    rows = json.loads((shared_data() / "rm-bench" / f"{name}_filtered.json").read_bytes())
    assert detect(rows) is RM_BENCH
    row_requests = [requests(RM_BENCH, row) for row in rows]
    assert [(len(row.names), len(row.requests), row.rejected) for row in row_requests] == [(6, 1, ())] * count
