"""Rows as datasets and trainers have them: who said what, in which context, and what is refused."""

import json
from typing import Any

import pytest

from actors.records import Reason
from pipelines.data.formats import SHAPES, RowRequests, RowShape, detect, parse
from tests.support.asked import contexts, judged, refused, said, shared_data, user

ASKED = [("user", "q")]
LONG = [("user", "q"), ("assistant", "a"), ("user", "r")]
SYSTEM = ("system", "s")


def read(name: str, row: dict[str, Any], turns: str = "final") -> RowRequests:
    """The requests of a row as a corpus reads it whose conversations may be written out as one text."""
    return RowShape(name, "all" if turns == "all" else "final", written_out=True).requests(row)


def refused_all(name: str, row: dict[str, Any]) -> Reason:
    """The one reason why nothing of the row can be judged."""
    row_requests = read(name, row)
    assert not row_requests.requests
    (reason,) = set(refused(row_requests).values())
    return reason


# --- ShareGPT ------------------------------------------------------------------------------------------------------


def share(*turns: tuple[object, object], **more: object) -> dict[str, Any]:
    return {"conversations": [{"from": name, "value": value} for name, value in turns], **more}


def test_sharegpt_names_its_speakers_in_many_ways() -> None:
    for user_name in ("human", "user", "Human", "User"):
        for assistant_name in ("gpt", "assistant", "chatgpt", "bard", "bing", "GPT", "Assistant"):
            row = share((user_name, "q"), (assistant_name, "a"), (user_name, "r"), (assistant_name, "b"))
            assert contexts(read("sharegpt", row)) == [LONG]
            assert judged(read("sharegpt", row)) == {"final": "b"}
            assert judged(read("sharegpt", row, "all")) == {"turn[1]": "a", "turn[3]": "b"}


def test_sharegpt_may_have_a_system_prompt_inside_or_outside() -> None:
    inside = share(("system", "s"), ("human", "q"), ("gpt", "a"))
    outside = share(("human", "q"), ("gpt", "a"), system="s")
    assert contexts(read("sharegpt", inside)) == contexts(read("sharegpt", outside)) == [[SYSTEM, *ASKED]]
    assert contexts(read("sharegpt", inside | {"system": "s"})) == [[SYSTEM, *ASKED]]
    assert refused(read("sharegpt", inside | {"system": "t"})) == {"final": Reason.TWO_SYSTEM_PROMPTS}
    assert contexts(read("sharegpt", outside | {"system": " "})) == [ASKED]


def test_a_position_is_that_in_the_rows_own_list() -> None:
    assert read("sharegpt", share(("human", "q"), ("gpt", "a"), system="s"), "all").names == ("turn[1]",)
    assert read("sharegpt", share(("system", "s"), ("human", "q"), ("gpt", "a")), "all").names == ("turn[2]",)


@pytest.mark.parametrize("name", ["tool", "function", "observation", "function_response"])
def test_what_a_tool_says_is_context(name: str) -> None:
    row = share(("human", "q"), (name, "t"), ("gpt", "a"))
    assert contexts(read("sharegpt", row)) == [[*ASKED, ("tool", "t")]]


def test_turns_with_openai_keys_are_read_as_they_are() -> None:
    assert contexts(read("sharegpt", {"conversations": [user("q"), said("a")]})) == [ASKED]


def test_a_bad_sharegpt_row() -> None:
    cases: list[tuple[dict[str, Any], Reason]] = [
        ({}, Reason.MISSING_FIELD),
        ({"conversations": []}, Reason.NO_MESSAGES),
        ({"conversations": "q"}, Reason.WRONG_TYPE),
        (share(("human", "q"), ("critic", "a")), Reason.UNKNOWN_ROLE),
        (share(("human", "q"), (5, "a")), Reason.WRONG_TYPE),
        (share(("human", "q"), ("gpt", 5)), Reason.CONTENT_NOT_TEXT),
        (share(("human", "q"), ("function_call", "{}")), Reason.TOOL_CALL),
        (share(("human", "q")), Reason.NO_FINAL_ASSISTANT),
        (share(("gpt", "a")), Reason.NO_MESSAGES),
        (share(("human", "q"), ("gpt", "a"), system=5), Reason.CONTENT_NOT_TEXT),
        ({"conversations": [{"from": "human"}, {"from": "gpt", "value": "a"}]}, Reason.MISSING_FIELD),
        ({"conversations": [{"value": "q"}]}, Reason.MISSING_FIELD),
        ({"conversations": ["q", {"from": "gpt", "value": "a"}]}, Reason.WRONG_TYPE),
    ]
    for row, reason in cases:
        assert refused_all("sharegpt", row) is reason


def test_a_bad_system_prompt_spoils_every_turn() -> None:
    row_requests = read("sharegpt", share(("human", "q"), ("gpt", "a"), ("human", "r"), ("gpt", "b"), system=5), "all")
    assert refused(row_requests) == {"turn[1]": Reason.CONTENT_NOT_TEXT, "turn[3]": Reason.CONTENT_NOT_TEXT}


@pytest.mark.parametrize("key", ["conversations", "messages"])
def test_a_sharegpt_pair_is_two_turns_to_go_on_with(key: str) -> None:
    row = {key: [user("q"), said("a"), user("r")], "chosen": said("good"), "rejected": said("bad")}
    for pair in (row, row | {key: share(("human", "q"), ("gpt", "a"), ("human", "r"))["conversations"]}):
        row_requests = read("sharegpt-preference", pair)
        assert (contexts(row_requests), judged(row_requests)) == ([LONG], {"chosen": "good", "rejected": "bad"})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (share(("human", "q"), ("gpt", "good"), chosen={"from": "gpt", "value": "good"}, rejected="b"), Reason.WRONG_TYPE),
        (share(("human", "q"), chosen={"from": "human", "value": "x"}, rejected=user("y")), Reason.NO_FINAL_ASSISTANT),
        (share(("human", "q")), Reason.MISSING_FIELD),
        ({"chosen": "a", "rejected": "b"}, Reason.MISSING_FIELD),
    ],
    ids=str,
)
def test_a_bad_sharegpt_pair(row: dict[str, Any], reason: Reason) -> None:
    assert refused_all("sharegpt-preference", row) is reason


# --- SteerLM -------------------------------------------------------------------------------------------------------


def steer(*turns: tuple[str, str, str | None], mask: str = "User") -> dict[str, Any]:
    listed = [{"value": value, "from": name, "label": label} for name, value, label in turns]
    return {"conversations": listed, "system": "s", "mask": mask, "type": "VALUE_TO_TEXT"}


@pytest.mark.parametrize("turns", ["final", "all"])
def test_labelled_turns_are_judged_each_with_all_before_it(turns: str) -> None:
    row = steer(("User", "q", None), ("Assistant", "a", "quality:4"), ("User", "r", None), ("Assistant", "b", ""))
    row_requests = read("steerlm", row, turns)
    assert judged(row_requests) == {"turn[1]": "a", "turn[3]": "b"}
    assert contexts(row_requests) == [[SYSTEM, *ASKED], [SYSTEM, *LONG]]


def test_of_labelled_turns_the_others_are_context_alone() -> None:
    row = steer(("User", "q", None), ("Assistant", "a", None), ("User", "r", None), ("Assistant", "b", "quality:4"))
    assert judged(read("steerlm", row, "all")) == {"turn[3]": "b"}


def test_without_labels_a_steerlm_row_is_any_conversation() -> None:
    row = steer(("User", "q", None), ("Assistant", "a", None), ("User", "r", None), ("Assistant", "b", None))
    assert judged(read("steerlm", row)) == {"final": "b"}
    assert judged(read("steerlm", row, "all")) == {"turn[1]": "a", "turn[3]": "b"}


def test_the_mask_names_the_user_whoever_that_is() -> None:
    row = steer(("Alice", "q", None), ("Bob", "a", "quality:1"), mask="Alice")
    assert contexts(read("steerlm", row)) == [[SYSTEM, *ASKED]]


def test_a_labelled_user_turn_is_refused_and_not_lost() -> None:
    row_requests = read("steerlm", steer(("User", "q", "quality:1"), ("Assistant", "a", "quality:2")))
    assert (refused(row_requests), judged(row_requests)) == ({"turn[0]": Reason.NO_FINAL_ASSISTANT}, {"turn[1]": "a"})


def test_turns_inside_a_users_turn_are_taken_apart_there_too() -> None:
    prompt = "q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr"
    row_requests = read("steerlm", steer(("User", prompt, None), ("Assistant", "b", "quality:2")))
    assert (contexts(row_requests), judged(row_requests)) == ([[SYSTEM, *LONG]], {"turn[1]": "b"})


def test_a_bad_steerlm_row() -> None:
    cases: list[tuple[dict[str, Any], Reason]] = [
        (steer(("User", "q", None), ("Assistant", "a", None), mask="Human"), Reason.UNKNOWN_ROLE),
        (steer(("User", "q", None), ("Assistant", "a", None), mask="Assistant"), Reason.UNKNOWN_ROLE),
        (steer(("User", "q", None), ("System", "t", None), ("Assistant", "a", None)), Reason.UNKNOWN_ROLE),
        (steer(("User", "q", None), ("user", "q", None), ("Assistant", "a", None)), Reason.UNKNOWN_ROLE),
        (steer(("User", "q", None)), Reason.NO_FINAL_ASSISTANT),
        (share(("User", "q"), ("Assistant", "a")), Reason.MISSING_FIELD),
        (share(("User", "q"), ("Assistant", "a"), mask=1), Reason.WRONG_TYPE),
        ({"mask": "User", "conversations": [{"from": "User", "value": "q"}, {"value": "a"}]}, Reason.MISSING_FIELD),
        ({"mask": "User"}, Reason.MISSING_FIELD),
    ]
    for row, reason in cases:
        assert refused_all("steerlm", row) is reason


# --- NeMo's template -----------------------------------------------------------------------------------------------

TEXT = "<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr\n<extra_id_1>Assistant\nb"


@pytest.mark.parametrize("end", ["\n<extra_id_2>", "\n<extra_id_1>", "\n", ""])
def test_a_text_in_nemos_template_is_a_conversation(end: str) -> None:
    row_requests = read("written-out", {"text": TEXT + end})
    assert (contexts(row_requests), judged(row_requests)) == ([[SYSTEM, *LONG]], {"final": "b"})
    assert judged(read("written-out", {"text": TEXT + end}, "all")) == {"turn[1]": "a", "turn[3]": "b"}


def test_line_breaks_of_a_content_are_its_own() -> None:
    text = "<extra_id_0>System\n\n<extra_id_1>User\n\nq\n\n\n<extra_id_1>Assistant\n\na\n\n<extra_id_2>"
    row_requests = read("written-out", {"text": text})
    assert (contexts(row_requests), judged(row_requests)) == ([[("user", "\nq\n\n")]], {"final": "\na\n"})


def test_a_text_that_is_not_of_the_form_is_refused() -> None:
    cases: list[tuple[object, Reason]] = [
        ("1 2 3", Reason.WRITTEN_OUT),
        ("", Reason.EMPTY_CONTENT),
        (" " + TEXT, Reason.WRITTEN_OUT),
        ("<extra_id_0>System\ns", Reason.WRITTEN_OUT),
        ("<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Assistant\n", Reason.WRITTEN_OUT),
        ("<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Assistant\n\n<extra_id_2>", Reason.EMPTY_CONTENT),
        ("<extra_id_0>System\ns\n<extra_id_1>User\nq", Reason.WRITTEN_OUT),
        ("<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Bob\na", Reason.WRITTEN_OUT),
        (TEXT + "\n<extra_id_2>quality:4\n<extra_id_2>", Reason.WRITTEN_OUT),
        (5, Reason.CONTENT_NOT_TEXT),
    ]
    for text, reason in cases:
        assert refused_all("written-out", {"text": text}) is reason


PROMPT = "<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Assistant\n"


def test_nemo_pairs_may_be_text_or_messages() -> None:
    goods: list[object] = ["good\n<extra_id_1>", "good", said("good")]
    prompts: list[object] = [PROMPT, [{"role": "system", "content": "s"}, user("q")]]
    for prompt in prompts:
        for good in goods:
            row_requests = read("nemo-preference", {"prompt": prompt, "chosen_response": good, "rejected_response": "bad"})
            assert (contexts(row_requests), judged(row_requests)) == (
                [[SYSTEM, *ASKED]],
                {"chosen": "good", "rejected": "bad"},
            )


def test_nemo_rows_for_kto_have_one_response() -> None:
    row_requests = read("nemo-preference", {"prompt": PROMPT, "response": "a\n<extra_id_1>", "preference": "rejected"})
    assert (contexts(row_requests), judged(row_requests)) == ([[SYSTEM, *ASKED]], {"final": "a"})


def test_a_nemo_pair_that_is_not_of_the_form_is_refused() -> None:
    cases: list[tuple[object, str, Reason]] = [
        (PROMPT, "ok\n<extra_id_1>User\nthanks\n<extra_id_1>Assistant\nbye\n<extra_id_1>", Reason.WRITTEN_OUT),
        (PROMPT, "\n<extra_id_1>", Reason.EMPTY_CONTENT),
        (PROMPT.removesuffix("\n<extra_id_1>Assistant\n"), "ok", Reason.WRITTEN_OUT),
        ("<extra_id_0>System\ns\n<extra_id_1>Assistant\n", "ok", Reason.WRITTEN_OUT),
        (PROMPT.replace("q", "q <extra_id_2>"), "ok", Reason.WRITTEN_OUT),
        (None, "ok", Reason.EMPTY_CONTENT),
    ]
    for prompt, response, reason in cases:
        row = {"prompt": prompt, "chosen_response": response, "rejected_response": response}
        assert refused_all("nemo-preference", row) is reason


def test_ranked_completions_have_the_names_of_their_ranks() -> None:
    row = {
        "context": [user("q"), said("a"), user("r")],
        "completions": [{"rank": 1, "completion": [said("bad")]}, {"rank": 0, "completion": [said("good")]}],
    }
    row_requests = read("nemo-rl", row)
    assert (contexts(row_requests), judged(row_requests)) == ([LONG], {"rank[1]": "bad", "rank[0]": "good"})


@pytest.mark.parametrize("ranks", [(0, 0), (0, None), (0, True), ("0", "1"), (0.0, 1.0)])
def test_without_ranks_that_tell_them_apart_completions_have_positions(ranks: tuple[object, object]) -> None:
    row = {"context": [user("q")], "completions": [{"rank": rank, "completion": [said("a")]} for rank in ranks]}
    assert judged(read("nemo-rl", row)) == {"completions[0]": "a", "completions[1]": "a"}


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ({"rank": 1}, Reason.MISSING_FIELD),
        ({"rank": 1, "completion": []}, Reason.NO_MESSAGES),
        ({"rank": 1, "completion": [user("x")]}, Reason.NO_FINAL_ASSISTANT),
        ({"rank": 1, "completion": [said(None)]}, Reason.EMPTY_CONTENT),
    ],
    ids=str,
)
def test_a_bad_completion_leaves_the_other(completion: dict[str, Any], reason: Reason) -> None:
    row = {"context": [user("q")], "completions": [{"rank": 0, "completion": [said("a")]}, completion]}
    assert (judged(read("nemo-rl", row)), refused(read("nemo-rl", row))) == ({"rank[0]": "a"}, {"rank[1]": reason})


def test_completions_that_are_none() -> None:
    cases: list[tuple[object, Reason]] = [(None, Reason.NO_MESSAGES), ("x", Reason.WRONG_TYPE), ([5], Reason.WRONG_TYPE)]
    for value, reason in cases:
        for name in ("nemo-rl", "ultrafeedback"):
            assert refused_all(name, {"context": [user("q")], "instruction": "q", "completions": value}) is reason


# --- HelpSteer -----------------------------------------------------------------------------------------------------

RATED = {"helpfulness": 4, "correctness": 3, "coherence": 4, "complexity": 1, "verbosity": [1, 2]}


@pytest.mark.parametrize(
    ("prompt", "context"),
    [
        ("q", ASKED),
        ("q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr", LONG),
        ("q\n\n<extra_id_1>Assistant\n\na\n<extra_id_1>User\nr\n", [("user", "q\n"), ("assistant", "\na"), ("user", "r\n")]),
        ([user("q")], ASKED),
    ],
)
def test_turns_inside_a_prompt_are_taken_apart(prompt: object, context: list[tuple[str, str]]) -> None:
    rated = read("helpsteer2", {"prompt": prompt, "response": "b", **RATED})
    assert (contexts(rated), judged(rated)) == ([context], {"final": "b"})
    pair = read("helpsteer2", {"prompt": prompt, "response_1": "b", "response_2": "c", "preference_strength": -1})
    assert (contexts(pair), judged(pair)) == ([context], {"response_1": "b", "response_2": "c"})


def test_a_prompt_with_other_tokens_stays_as_it_is() -> None:
    for prompt in (
        "q\n<extra_id_1>Assistant\na",
        "q\n<extra_id_1>User\nr",
        "q\n<extra_id_1>Assistant\na\n<extra_id_1>Assistant\nb\n<extra_id_1>User\nr",
        "q <extra_id_1>Assistant\na\n<extra_id_1>User\nr",
        "q\n<extra_id_1>Assistant\na <extra_id_2>\n<extra_id_1>User\nr",
        "What is <extra_id_0> in T5?",
    ):
        assert contexts(read("helpsteer2", {"prompt": prompt, "response": "b", **RATED})) == [[("user", prompt)]]


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        ({"prompt": "q"}, {"final": Reason.MISSING_FIELD}),
        ({"prompt": None, "response": "a"}, {"final": Reason.EMPTY_CONTENT}),
        ({"prompt": "q", "response_1": "a"}, {"response_2": Reason.MISSING_FIELD}),
        ({"prompt": "q", "response_1": "a", "response_2": ""}, {"response_2": Reason.EMPTY_CONTENT}),
        ({"prompt": "\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr", "response": "a"}, {"final": Reason.EMPTY_CONTENT}),
    ],
    ids=str,
)
def test_a_bad_helpsteer2_row(row: dict[str, Any], reasons: dict[str, Reason]) -> None:
    assert refused(read("helpsteer2", row)) == reasons


@pytest.mark.parametrize(
    "responses",
    [
        {"response1": "a", "response2": "b"},
        {"original_response": "a", "edited_response": "b"},
        {"original_response": "a", "good_edited_response": "b", "bad_edited_response": "c"},
        {"original_response": "a", "edited_response": "b", "good_edited_response": "c", "bad_edited_response": "d"},
    ],
    ids=str,
)
def test_helpsteer3_names_responses_by_their_keys(responses: dict[str, str]) -> None:
    row = {"domain": "general", "context": [user("q"), said("a"), user("r")], "overall_preference": -2, **responses}
    row_requests = read("helpsteer3", row)
    assert (contexts(row_requests), judged(row_requests)) == ([LONG], responses)


def test_a_principle_goes_with_the_request() -> None:
    row = {"context": [user("q")], "response": "a", "principle": "Is it short?", "fulfilment": "Yes"}
    (request,) = read("helpsteer3", row).requests
    assert (request.principles, judged(read("helpsteer3", row))) == (("Is it short?",), {"final": "a"})
    assert refused(read("helpsteer3", row | {"principle": " "})) == {"final": Reason.EMPTY_CONTENT}


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        ({"context": [user("q")]}, {"final": Reason.MISSING_FIELD}),
        ({"context": [user("q")], "response": "a"}, {"final": Reason.MISSING_FIELD}),
        ({"context": [user("q")], "response1": "a"}, {"response2": Reason.MISSING_FIELD}),
        ({"context": [user("q")], "edited_response": "a"}, {"original_response": Reason.MISSING_FIELD}),
        ({"context": [], "response1": "a", "response2": "b"}, dict.fromkeys(["response1", "response2"], Reason.NO_MESSAGES)),
    ],
    ids=str,
)
def test_a_bad_helpsteer3_row(row: dict[str, Any], reasons: dict[str, Reason]) -> None:
    assert refused(read("helpsteer3", row)) == reasons


# --- one prompt, other keys ----------------------------------------------------------------------------------------


def test_ultrafeedback_has_a_response_of_each_model() -> None:
    completions = [{"model": "m", "custom_system_prompt": "Be brief.", "response": text} for text in ["a", "", "c"]]
    row_requests = read("ultrafeedback", {"instruction": "q", "completions": completions})
    assert (contexts(row_requests), judged(row_requests)) == ([ASKED], {"completions[0]": "a", "completions[2]": "c"})
    assert refused(row_requests) == {"completions[1]": Reason.EMPTY_CONTENT}


def test_a_prompt_and_its_completion() -> None:
    prompts: list[object] = ["q", [user("q")]]
    completions: list[object] = ["a", said("a"), [said("a")]]
    for completion in completions:
        for prompt in prompts:
            row_requests = read("prompt-completion", {"prompt": prompt, "completion": completion, "label": False})
            assert (contexts(row_requests), judged(row_requests)) == ([ASKED], {"final": "a"})


def test_a_completion_of_several_turns_ends_with_the_response() -> None:
    row_requests = read("prompt-completion", {"prompt": [user("q")], "completion": [said("a"), user("r"), said("b")]})
    assert (contexts(row_requests), judged(row_requests)) == ([LONG], {"final": "b"})


@pytest.mark.parametrize("given", [None, "", "x"])
def test_alpaca_puts_instruction_and_input_under_each_other(given: str | None) -> None:
    row = {"instruction": "q", "input": given, "output": "a", "system": "s", "history": [["q", "a"]]}
    context = [SYSTEM, *ASKED, ("assistant", "a"), ("user", f"q\n{given}" if given else "q")]
    assert contexts(read("alpaca", row)) == [context]
    assert judged(read("alpaca", row)) == {"final": "a"}


def test_alpaca_may_be_a_pair() -> None:
    row_requests = read("alpaca", {"instruction": "q", "input": "", "chosen": "good", "rejected": "bad"})
    assert (contexts(row_requests), judged(row_requests)) == ([ASKED], {"chosen": "good", "rejected": "bad"})
    both = read("alpaca", {"instruction": "q", "output": "a", "chosen": "good", "rejected": "bad"})
    assert judged(both) == {"final": "a", "chosen": "good", "rejected": "bad"}


def test_a_bad_alpaca_row() -> None:
    cases: list[tuple[dict[str, Any], Reason]] = [
        ({"output": "a"}, Reason.MISSING_FIELD),
        ({"instruction": "q"}, Reason.MISSING_FIELD),
        ({"instruction": " ", "output": "a"}, Reason.EMPTY_CONTENT),
        ({"instruction": "q", "input": 5, "output": "a"}, Reason.CONTENT_NOT_TEXT),
        ({"instruction": "q", "output": "a", "history": [["q"]]}, Reason.WRONG_TYPE),
        ({"instruction": "q", "output": "a", "history": [["q", None]]}, Reason.EMPTY_CONTENT),
    ]
    for row, reason in cases:
        assert refused_all("alpaca", row) is reason


LLAMA = "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"


@pytest.mark.parametrize("given", ["q", [user("q")], LLAMA, "<|begin_of_text|>" + LLAMA])
def test_an_input_may_be_text_messages_or_llamas_template(given: object) -> None:
    row_requests = read("input-output", {"input": given, "output": "a", "system_prompt": "s"})
    assert (contexts(row_requests), judged(row_requests)) == ([[SYSTEM, *ASKED]], {"final": "a"})


def test_a_system_prompt_is_not_repeated() -> None:
    template = "<|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>" + LLAMA
    for value in (template, [{"role": "system", "content": "s"}, user("q")]):
        assert contexts(read("input-output", {"input": value, "output": "a", "system_prompt": "s"})) == [[SYSTEM, *ASKED]]


def test_a_bad_input_or_output() -> None:
    cases: list[tuple[object, object, Reason]] = [
        (LLAMA.removesuffix("\n\n"), "a", Reason.WRITTEN_OUT),
        (LLAMA + "x", "a", Reason.WRITTEN_OUT),
        (LLAMA.replace("q<|eot_id|>", "q <|eot_id|> r<|eot_id|>"), "a", Reason.WRITTEN_OUT),
        (LLAMA.replace("|>user<|", "|>critic<|"), "a", Reason.WRITTEN_OUT),
        (LLAMA, "a<|eot_id|>b", Reason.WRITTEN_OUT),
        (LLAMA, "<|eot_id|>", Reason.EMPTY_CONTENT),
        ("q", None, Reason.EMPTY_CONTENT),
        (None, "a", Reason.EMPTY_CONTENT),
    ]
    for value, output, reason in cases:
        assert refused_all("input-output", {"input": value, "output": output}) is reason


# --- benchmarks ----------------------------------------------------------------------------------------------------


def test_rewardbench_1_is_a_pair_of_texts() -> None:
    row = {"prompt": "q", "chosen": "a", "chosen_model": "m", "rejected": "b", "rejected_model": "n", "subset": "hep-cpp"}
    assert detect([row | {"id": 1}]) is SHAPES["preference"]
    row_requests = read("preference", row | {"id": 1})
    assert (contexts(row_requests), judged(row_requests)) == ([ASKED], {"chosen": "a", "rejected": "b"})
    assert contexts(read("preference", row | {"prompt": [user("q"), said("a"), user("r")]})) == [LONG]  # its prior sets


def test_rewardbench_2_has_one_or_more_right_completions() -> None:
    counts = {"num_correct": 2, "num_incorrect": 1, "total_completions": 3, "models": ["m", "n", "o"]}
    row = {"id": "tied:1", "prompt": "q", "chosen": ["a", "b"], "rejected": ["c"], **counts, "subset": "Ties"}
    row |= {"additional_metadata": {"category": None}}
    assert detect([row]) is SHAPES["rm-bench"]
    row_requests = read("rm-bench", row)
    assert (contexts(row_requests), judged(row_requests)) == (
        [ASKED],
        {"chosen[0]": "a", "chosen[1]": "b", "rejected[0]": "c"},
    )


def rmb_answer(text: object) -> dict[str, Any]:
    return {"llm_name": "m", "answer": text}


RMB_ASKED = {"conversation_input": [{**user("q"), "language": "English"}], "category_path": "Pairwise_set/Helpfulness/Chat"}


def test_a_pair_of_rmb() -> None:
    row = {"pair_uid": "1", **RMB_ASKED, "chosen": rmb_answer("a") | {"score": 4.5}, "reject": rmb_answer("b")}
    assert detect([row]) is SHAPES["rmb"]
    row_requests = read("rmb", row)
    assert (contexts(row_requests), judged(row_requests)) == ([ASKED], {"chosen": "a", "rejected": "b"})
    half = {key: value for key, value in row.items() if key != "reject"}
    assert refused(read("rmb", half)) == {"rejected": Reason.MISSING_FIELD}
    assert refused(read("rmb", row | {"reject": "b"})) == {"rejected": Reason.WRONG_TYPE}
    assert refused(read("rmb", row | {"reject": rmb_answer(["b", "c"])})) == {"rejected": Reason.WRONG_TYPE}


def test_the_best_of_several_of_rmb() -> None:
    row = {"bon_uid": "1", **RMB_ASKED, "bon_best": rmb_answer("a"), "loser_list": [rmb_answer("b"), rmb_answer("")]}
    assert detect([row]) is SHAPES["rmb"]
    row_requests = read("rmb", row)
    assert (contexts(row_requests), judged(row_requests)) == ([ASKED], {"chosen[0]": "a", "rejected[0]": "b"})
    assert refused(row_requests) == {"rejected[1]": Reason.EMPTY_CONTENT}
    assert refused_all("rmb", row | {"loser_list": []}) is Reason.NO_MESSAGES
    both = read("rmb", row | {"chosen": rmb_answer("c"), "reject": rmb_answer("d")})
    assert both.names == ("chosen[0]", "rejected[0]", "rejected[1]", "chosen", "rejected")


def test_the_steps_of_processbench_are_parted_by_blank_lines() -> None:
    row = {"id": "gsm8k-0", "problem": "q", "steps": ["one\n\nmore", "two"], "label": 1, "final_answer_correct": False}
    assert detect([row]) is SHAPES["processbench"]
    assert judged(read("processbench", row)) == {"final": "one\nmore\n\ntwo"}, "as many steps as the row has"
    assert refused(read("processbench", row | {"steps": ["one", " "]})) == {"final": Reason.EMPTY_CONTENT}
    assert refused(read("processbench", row | {"steps": []})) == {"final": Reason.NO_MESSAGES}


def test_llmbar_numbers_its_outputs() -> None:
    row = {"input": "q", "output_1": "a", "output_2": "b", "label": 2}
    assert detect([row]) is SHAPES["llmbar"]
    assert (contexts(read("llmbar", row)), judged(read("llmbar", row))) == ([ASKED], {"output_1": "a", "output_2": "b"})
    assert refused(read("llmbar", row | {"output_2": None})) == {"output_2": Reason.EMPTY_CONTENT}


def test_each_of_a_list_of_responses_is_judged() -> None:
    row_requests = read("prompt-responses", {"prompt": "q", "responses": ["a", " ", said("c"), ["d", "e"]], "system": "s"})
    assert (contexts(row_requests), judged(row_requests)) == ([[SYSTEM, *ASKED]], {"responses[0]": "a", "responses[2]": "c"})
    assert refused(row_requests) == {"responses[1]": Reason.EMPTY_CONTENT, "responses[3]": Reason.WRONG_TYPE}
    assert refused_all("prompt-responses", {"prompt": "q", "responses": "a"}) is Reason.WRONG_TYPE


# --- real data -----------------------------------------------------------------------------------------------------


def published(name: str) -> list[dict[str, Any]]:
    data = (shared_data() / "formats" / name).read_bytes()
    rows: list[dict[str, Any]] = json.loads(data) if name.endswith(".json") else [parse(line) for line in data.splitlines()]
    return rows


@pytest.mark.parametrize(
    ("file", "name", "rows", "responses"),
    [
        ("nemo-aligner_test-rm.jsonl", "written-out", 8, 8),
        ("nemo-aligner_dummy-dpo.jsonl", "nemo-preference", 100, 200),
        ("sharegpt_ranking_40.json", "sharegpt-preference", 40, 80),
    ],
)
def test_rows_as_published(file: str, name: str, rows: int, responses: int) -> None:
    actual_rows = published(file)
    assert detect(actual_rows) is SHAPES[name]
    row_requests = [read(name, row) for row in actual_rows]
    assert len(row_requests) == rows
    assert sum(len(row.names) for row in row_requests) == responses
    assert not any(row.rejected for row in row_requests)
    texts = [
        text
        for row in row_requests
        for text in (*judged(row).values(), *(text for turns in contexts(row) for _, text in turns))
    ]
    assert not any("<extra_id_" in text for text in texts)


def test_a_regression_row_comes_back_from_its_turns() -> None:
    for row in published("nemo-aligner_test-rm.jsonl"):
        (request,) = read("written-out", row).requests
        system, *turns = request.context
        spoken = "".join(f"<extra_id_1>{turn.role.title()}\n{turn.content}\n" for turn in turns)
        end = f"<extra_id_1>Assistant\n{request.responses[0].content}\n<extra_id_2>"
        assert f"<extra_id_0>System\n{system.content}\n{spoken}{end}" == row["text"]


def test_a_sharegpt_pair_as_published_keeps_its_sides_and_its_context() -> None:
    for row in published("sharegpt_ranking_40.json"):
        row_requests = read("sharegpt-preference", row)
        assert judged(row_requests) == {side: row[side]["value"] for side in ("chosen", "rejected")}
        roles = {"human": "user", "gpt": "assistant", "system": "system"}
        assert contexts(row_requests) == [[(roles[turn["from"]], turn["value"]) for turn in row["conversations"]]]
