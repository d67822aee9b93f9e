"""Rows as datasets and trainers have them: who said what, in which context, and what is refused."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from actors.records import Reason
from pipelines.data.formats import SHAPES, RowRequests, RowShape, detect, parse
from tests.support.parsed_rows import contexts, judged, refused, reply, shared_data, user

ASKED = [("user", "q")]
LONG = [("user", "q"), ("assistant", "a"), ("user", "r")]
SYSTEM = ("system", "s")
PAIR = {"chosen": "good", "rejected": "bad"}


def read(name: str, row: Mapping[str, Any], turns: str = "final") -> RowRequests:
    """The requests of a row as a corpus reads it whose conversations may be written out as one text."""
    return RowShape(name, "all" if turns == "all" else "final", written_out=True).requests(row)


def check_read(name: str, row: Mapping[str, Any], context: list[tuple[str, str]], responses: Mapping[str, str]) -> None:
    """A row's responses are judged in one context."""
    row_requests = read(name, row)
    assert (contexts(row_requests), judged(row_requests), refused(row_requests)) == ([context], responses, {}), row


def check_refused(name: str, rows: list[tuple[dict[str, Any], Reason]]) -> None:
    """Nothing of each row can be judged, for one reason."""
    for row, reason in rows:
        row_requests = read(name, row)
        assert (set(refused(row_requests).values()), row_requests.requests) == ({reason}, ()), row


# --- ShareGPT ------------------------------------------------------------------------------------------------------


def share(*turns: tuple[object, object], **more: object) -> dict[str, Any]:
    return {"conversations": [{"from": name, "value": value} for name, value in turns], **more}


def test_sharegpt_names_its_speakers_in_many_ways() -> None:
    for user_name in ("human", "User"):
        for assistant_name in ("gpt", "assistant", "chatgpt", "bard", "bing", "GPT"):
            row = share((user_name, "q"), (assistant_name, "a"), (user_name, "r"), (assistant_name, "b"))
            check_read("sharegpt", row, LONG, {"final": "b"})
            assert judged(read("sharegpt", row, "all")) == {"turn[1]": "a", "turn[3]": "b"}
    for tool in ("tool", "function", "observation", "function_response"):
        check_read("sharegpt", share(("human", "q"), (tool, "t"), ("gpt", "a")), [*ASKED, ("tool", "t")], {"final": "a"})
    check_read("sharegpt", {"conversations": [user("q"), reply("a")]}, ASKED, {"final": "a"})


def test_sharegpt_may_have_a_system_prompt_inside_or_outside() -> None:
    inside = share(("system", "s"), ("human", "q"), ("gpt", "a"))
    outside = share(("human", "q"), ("gpt", "a"), system="s")
    for row in (inside, outside, inside | {"system": "s"}):
        check_read("sharegpt", row, [SYSTEM, *ASKED], {"final": "a"})
    check_read("sharegpt", outside | {"system": " "}, ASKED, {"final": "a"})
    check_refused("sharegpt", [(inside | {"system": "t"}, Reason.TWO_SYSTEM_PROMPTS)])
    assert read("sharegpt", outside, "all").names == ("turn[1]",), "a position is that in the row's own list"
    assert read("sharegpt", inside, "all").names == ("turn[2]",)


def test_a_bad_sharegpt_row() -> None:
    check_refused(
        "sharegpt",
        [
            ({}, Reason.MISSING_FIELD),
            ({"conversations": []}, Reason.NO_MESSAGES),
            ({"conversations": "q"}, Reason.WRONG_TYPE),
            (share(("human", "q"), ("critic", "a")), Reason.UNKNOWN_ROLE),
            (share(("human", "q"), (5, "a")), Reason.WRONG_TYPE),
            (share(("human", "q"), ("gpt", 5)), Reason.CONTENT_NOT_TEXT),
            (share(("human", "q"), ("function_call", "{}")), Reason.TOOL_CALL),
            (share(("human", "q")), Reason.NO_FINAL_ASSISTANT),
            (share(("gpt", "a")), Reason.NO_MESSAGES),
            ({"conversations": [{"from": "human"}, {"from": "gpt", "value": "a"}]}, Reason.MISSING_FIELD),
            ({"conversations": [{"value": "q"}]}, Reason.MISSING_FIELD),
            ({"conversations": ["q", {"from": "gpt", "value": "a"}]}, Reason.WRONG_TYPE),
        ],
    )
    row_requests = read("sharegpt", share(("human", "q"), ("gpt", "a"), ("human", "r"), ("gpt", "b"), system=5), "all")
    assert refused(row_requests) == {"turn[1]": Reason.CONTENT_NOT_TEXT, "turn[3]": Reason.CONTENT_NOT_TEXT}


def test_a_sharegpt_pair_is_two_turns_to_go_on_with() -> None:
    for key in ("conversations", "messages"):
        row = {key: [user("q"), reply("a"), user("r")], "chosen": reply("good"), "rejected": reply("bad")}
        check_read("sharegpt-preference", row, LONG, PAIR)
    check_refused(
        "sharegpt-preference",
        [
            (
                share(("human", "q"), ("gpt", "good"), chosen={"from": "gpt", "value": "good"}, rejected="b"),
                Reason.WRONG_TYPE,
            ),
            (share(("human", "q"), chosen={"from": "human", "value": "x"}, rejected=user("y")), Reason.NO_FINAL_ASSISTANT),
            (share(("human", "q")), Reason.MISSING_FIELD),
            ({"chosen": "a", "rejected": "b"}, Reason.MISSING_FIELD),
        ],
    )


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
    row["conversations"][1]["label"] = None
    assert judged(read("steerlm", row, turns)) == {"turn[3]": "b"}, "the others are context alone"


def test_without_labels_a_steerlm_row_is_any_conversation() -> None:
    row = steer(("Alice", "q", None), ("Bob", "a", None), ("Alice", "r", None), ("Bob", "b", None), mask="Alice")
    check_read("steerlm", row, [SYSTEM, *LONG], {"final": "b"})
    assert judged(read("steerlm", row, "all")) == {"turn[1]": "a", "turn[3]": "b"}


def test_a_labelled_user_turn_is_refused_and_not_lost() -> None:
    row_requests = read("steerlm", steer(("User", "q", "quality:1"), ("Assistant", "a", "quality:2")))
    assert (refused(row_requests), judged(row_requests)) == ({"turn[0]": Reason.NO_FINAL_ASSISTANT}, {"turn[1]": "a"})


def test_turns_inside_a_users_turn_are_taken_apart_there_too() -> None:
    prompt = "q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr"
    row = steer(("User", prompt, None), ("Assistant", "b", "quality:2"))
    check_read("steerlm", row, [SYSTEM, *LONG], {"turn[1]": "b"})


def test_a_bad_steerlm_row() -> None:
    check_refused(
        "steerlm",
        [
            (steer(("User", "q", None), ("Assistant", "a", None), mask="Human"), Reason.UNKNOWN_ROLE),
            (steer(("User", "q", None), ("Assistant", "a", None), mask="Assistant"), Reason.UNKNOWN_ROLE),
            (steer(("User", "q", None), ("System", "t", None), ("Assistant", "a", None)), Reason.UNKNOWN_ROLE),
            (steer(("User", "q", None), ("user", "q", None), ("Assistant", "a", None)), Reason.UNKNOWN_ROLE),
            (steer(("User", "q", None)), Reason.NO_FINAL_ASSISTANT),
            (share(("User", "q"), ("Assistant", "a")), Reason.MISSING_FIELD),
            (share(("User", "q"), ("Assistant", "a"), mask=1), Reason.WRONG_TYPE),
            ({"mask": "User", "conversations": [{"from": "User", "value": "q"}, {"value": "a"}]}, Reason.MISSING_FIELD),
            ({"mask": "User"}, Reason.MISSING_FIELD),
        ],
    )


# --- NeMo's template -----------------------------------------------------------------------------------------------

PROMPT = "<extra_id_0>System\ns\n<extra_id_1>User\nq\n<extra_id_1>Assistant\n"
TEXT = f"{PROMPT}a\n<extra_id_1>User\nr\n<extra_id_1>Assistant\nb"


def test_a_text_in_nemos_template_is_a_conversation() -> None:
    for end in ("\n<extra_id_2>", "\n<extra_id_1>", "\n", ""):
        check_read("written-out", {"text": TEXT + end}, [SYSTEM, *LONG], {"final": "b"})
        assert judged(read("written-out", {"text": TEXT + end}, "all")) == {"turn[1]": "a", "turn[3]": "b"}
    text = "<extra_id_0>System\n\n<extra_id_1>User\n\nq\n\n\n<extra_id_1>Assistant\n\na\n\n<extra_id_2>"
    check_read("written-out", {"text": text}, [("user", "\nq\n\n")], {"final": "\na\n"})


def test_a_text_that_is_not_of_the_form_is_refused() -> None:
    texts: list[tuple[object, Reason]] = [
        ("1 2 3", Reason.WRITTEN_OUT),
        ("", Reason.EMPTY_CONTENT),
        (" " + TEXT, Reason.WRITTEN_OUT),
        ("<extra_id_0>System\ns", Reason.WRITTEN_OUT),
        (PROMPT, Reason.WRITTEN_OUT),
        (PROMPT + "\n<extra_id_2>", Reason.EMPTY_CONTENT),
        ("<extra_id_0>System\ns\n<extra_id_1>User\nq", Reason.WRITTEN_OUT),
        (PROMPT.replace("Assistant", "Bob") + "a", Reason.WRITTEN_OUT),
        (TEXT + "\n<extra_id_2>quality:4\n<extra_id_2>", Reason.WRITTEN_OUT),
        (5, Reason.CONTENT_NOT_TEXT),
    ]
    check_refused("written-out", [({"text": text}, reason) for text, reason in texts])


def test_nemo_pairs_may_be_text_or_messages() -> None:
    prompts: list[object] = [PROMPT, [{"role": "system", "content": "s"}, user("q")]]
    for prompt in prompts:
        for good in ("good\n<extra_id_1>", "good", reply("good")):
            row = {"prompt": prompt, "chosen_response": good, "rejected_response": "bad"}
            check_read("nemo-preference", row, [SYSTEM, *ASKED], PAIR)
    row = {"prompt": PROMPT, "response": "a\n<extra_id_1>", "preference": "rejected"}
    check_read("nemo-preference", row, [SYSTEM, *ASKED], {"final": "a"})


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
        check_refused("nemo-preference", [(row, reason)])


def test_ranked_completions_have_the_names_of_their_ranks() -> None:
    row = {
        "context": [user("q"), reply("a"), user("r")],
        "completions": [{"rank": 1, "completion": [reply("bad")]}, {"rank": 0, "completion": [reply("good")]}],
    }
    check_read("nemo-rl", row, LONG, {"rank[1]": "bad", "rank[0]": "good"})
    for ranks in ((0, 0), (0, None), (0, True), ("0", "1"), (0.0, 1.0)):
        row = {"context": [user("q")], "completions": [{"rank": rank, "completion": [reply("a")]} for rank in ranks]}
        check_read("nemo-rl", row, ASKED, {"completions[0]": "a", "completions[1]": "a"})


def test_a_bad_completion_leaves_the_other() -> None:
    cases: list[tuple[dict[str, Any], Reason]] = [
        ({"rank": 1}, Reason.MISSING_FIELD),
        ({"rank": 1, "completion": []}, Reason.NO_MESSAGES),
        ({"rank": 1, "completion": [user("x")]}, Reason.NO_FINAL_ASSISTANT),
        ({"rank": 1, "completion": [reply(None)]}, Reason.EMPTY_CONTENT),
    ]
    for completion, reason in cases:
        row = {"context": [user("q")], "completions": [{"rank": 0, "completion": [reply("a")]}, completion]}
        assert (judged(read("nemo-rl", row)), refused(read("nemo-rl", row))) == ({"rank[0]": "a"}, {"rank[1]": reason})
    for value, reason in ((None, Reason.NO_MESSAGES), ("x", Reason.WRONG_TYPE), ([5], Reason.WRONG_TYPE)):
        for name in ("nemo-rl", "ultrafeedback"):
            check_refused(name, [({"context": [user("q")], "instruction": "q", "completions": value}, reason)])


# --- HelpSteer -----------------------------------------------------------------------------------------------------

RATED = {"helpfulness": 4, "correctness": 3, "coherence": 4, "complexity": 1, "verbosity": [1, 2]}


def test_turns_inside_a_prompt_are_taken_apart() -> None:
    cases: list[tuple[object, list[tuple[str, str]]]] = [
        ("q", ASKED),
        ([user("q")], ASKED),
        ("q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr", LONG),
        ("q\n\n<extra_id_1>Assistant\n\na\n<extra_id_1>User\nr\n", [("user", "q\n"), ("assistant", "\na"), ("user", "r\n")]),
    ]
    others = (
        "q\n<extra_id_1>Assistant\na",
        "q\n<extra_id_1>User\nr",
        "q\n<extra_id_1>Assistant\na\n<extra_id_1>Assistant\nb\n<extra_id_1>User\nr",
        "q <extra_id_1>Assistant\na\n<extra_id_1>User\nr",
        "q\n<extra_id_1>Assistant\na <extra_id_2>\n<extra_id_1>User\nr",
        "What is <extra_id_0> in T5?",
    )
    for prompt, context in (*cases, *((prompt, [("user", prompt)]) for prompt in others)):
        check_read("helpsteer2", {"prompt": prompt, "response": "b", **RATED}, context, {"final": "b"})
        pair = {"response_1": "b", "response_2": "c"}
        check_read("helpsteer2", {"prompt": prompt, **pair, "preference_strength": -1}, context, pair)


def test_helpsteer3_names_responses_by_their_keys() -> None:
    for keys in (
        ("response1", "response2"),
        ("original_response", "edited_response"),
        ("original_response", "good_edited_response", "bad_edited_response"),
        ("original_response", "edited_response", "good_edited_response", "bad_edited_response"),
    ):
        responses = {key: f"as {key}" for key in keys}
        row = {"domain": "general", "context": [user("q"), reply("a"), user("r")], "overall_preference": -2, **responses}
        check_read("helpsteer3", row, LONG, responses)


def test_a_principle_goes_with_the_request() -> None:
    row = {"context": [user("q")], "response": "a", "principle": "Is it short?", "fulfilment": "Yes"}
    (request,) = read("helpsteer3", row).requests
    assert (request.principles, judged(read("helpsteer3", row))) == (("Is it short?",), {"final": "a"})
    check_refused("helpsteer3", [(row | {"principle": " "}, Reason.EMPTY_CONTENT)])


def test_a_bad_row_of_helpsteer_has_a_reason_for_each_response() -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Reason]]] = [
        ("helpsteer2", {"prompt": "q"}, {"final": Reason.MISSING_FIELD}),
        ("helpsteer2", {"prompt": None, "response": "a"}, {"final": Reason.EMPTY_CONTENT}),
        ("helpsteer2", {"prompt": "q", "response_1": "a"}, {"response_2": Reason.MISSING_FIELD}),
        ("helpsteer2", {"prompt": "q", "response_1": "a", "response_2": ""}, {"response_2": Reason.EMPTY_CONTENT}),
        (
            "helpsteer2",
            {"prompt": "\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr", "response": "a"},
            {"final": Reason.EMPTY_CONTENT},
        ),
        ("helpsteer3", {"context": [user("q")]}, {"final": Reason.MISSING_FIELD}),
        ("helpsteer3", {"context": [user("q")], "response": "a"}, {"final": Reason.MISSING_FIELD}),
        ("helpsteer3", {"context": [user("q")], "response1": "a"}, {"response2": Reason.MISSING_FIELD}),
        ("helpsteer3", {"context": [user("q")], "edited_response": "a"}, {"original_response": Reason.MISSING_FIELD}),
        (
            "helpsteer3",
            {"context": [], "response1": "a", "response2": "b"},
            dict.fromkeys(["response1", "response2"], Reason.NO_MESSAGES),
        ),
    ]
    for name, row, reasons in cases:
        assert refused(read(name, row)) == reasons, row


# --- one prompt, other keys ----------------------------------------------------------------------------------------


def test_a_prompt_and_its_completion() -> None:
    for prompt in ("q", [user("q")]):
        for completion in ("a", reply("a"), [reply("a")]):
            row = {"prompt": prompt, "completion": completion, "label": False}
            check_read("prompt-completion", row, ASKED, {"final": "a"})
    row = {"prompt": [user("q")], "completion": [reply("a"), user("r"), reply("b")]}
    check_read("prompt-completion", row, LONG, {"final": "b"})


def test_alpaca_puts_instruction_and_input_under_each_other() -> None:
    for input_text in (None, "", "x"):
        row = {"instruction": "q", "input": input_text, "output": "a", "system": "s", "history": [["q", "a"]]}
        context = [SYSTEM, *ASKED, ("assistant", "a"), ("user", f"q\n{input_text}" if input_text else "q")]
        check_read("alpaca", row, context, {"final": "a"})
    check_read("alpaca", {"instruction": "q", "input": "", **PAIR}, ASKED, PAIR)
    check_read("alpaca", {"instruction": "q", "output": "a", **PAIR}, ASKED, {"final": "a", **PAIR})
    check_refused(
        "alpaca",
        [
            ({"output": "a"}, Reason.MISSING_FIELD),
            ({"instruction": "q"}, Reason.MISSING_FIELD),
            ({"instruction": " ", "output": "a"}, Reason.EMPTY_CONTENT),
            ({"instruction": "q", "input": 5, "output": "a"}, Reason.CONTENT_NOT_TEXT),
            ({"instruction": "q", "output": "a", "history": [["q"]]}, Reason.WRONG_TYPE),
            ({"instruction": "q", "output": "a", "history": [["q", None]]}, Reason.EMPTY_CONTENT),
        ],
    )


LLAMA = "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"


def test_an_input_may_be_text_messages_or_llamas_template() -> None:
    with_system = "<|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>" + LLAMA
    turns = [{"role": "system", "content": "s"}, user("q")]
    for prompt in ("q", [user("q")], LLAMA, "<|begin_of_text|>" + LLAMA, with_system, turns):
        check_read("input-output", {"input": prompt, "output": "a", "system_prompt": "s"}, [SYSTEM, *ASKED], {"final": "a"})
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
    check_refused("input-output", [({"input": value, "output": output}, reason) for value, output, reason in cases])


# --- benchmarks ----------------------------------------------------------------------------------------------------


def test_rewardbench_is_a_pair_of_texts_or_has_several_right_completions() -> None:
    pair = {"prompt": "q", **PAIR, "chosen_model": "m", "rejected_model": "n", "subset": "hep-cpp", "id": 1}
    several = {"id": "tied:1", "prompt": "q", "chosen": ["a", "b"], "rejected": ["c"], "num_correct": 2, "models": ["m"]}
    assert (detect([pair]), detect([several])) == (SHAPES["preference"], SHAPES["rm-bench"])
    check_read("preference", pair, ASKED, PAIR)
    check_read("preference", pair | {"prompt": [user("q"), reply("a"), user("r")]}, LONG, PAIR)  # its prior sets
    check_read("rm-bench", several, ASKED, {"chosen[0]": "a", "chosen[1]": "b", "rejected[0]": "c"})


def rmb_answer(text: object) -> dict[str, Any]:
    return {"llm_name": "m", "answer": text}


def test_rmb_has_pairs_and_the_best_of_several() -> None:
    context = {"conversation_input": [{**user("q"), "language": "English"}], "category_path": "Helpfulness/Chat"}
    pair = {"pair_uid": "1", **context, "chosen": rmb_answer("good") | {"score": 4.5}, "reject": rmb_answer("bad")}
    best = {"bon_uid": "1", **context, "bon_best": rmb_answer("a"), "loser_list": [rmb_answer("b"), rmb_answer("")]}
    assert detect([pair]) is detect([best]) is SHAPES["rmb"]
    check_read("rmb", pair, ASKED, PAIR)
    for reject, reason in (
        ("b", Reason.WRONG_TYPE),
        (rmb_answer(["b", "c"]), Reason.WRONG_TYPE),
        (None, Reason.MISSING_FIELD),
    ):
        assert refused(read("rmb", pair | {"reject": reject})) == {"rejected": reason}
    assert judged(read("rmb", best)) == {"chosen[0]": "a", "rejected[0]": "b"}
    assert refused(read("rmb", best)) == {"rejected[1]": Reason.EMPTY_CONTENT}
    check_refused("rmb", [(best | {"loser_list": []}, Reason.NO_MESSAGES)])
    assert read("rmb", pair | best).names == ("chosen[0]", "rejected[0]", "rejected[1]", "chosen", "rejected")


def test_the_steps_of_processbench_are_parted_by_blank_lines() -> None:
    row = {"id": "gsm8k-0", "problem": "q", "steps": ["one\n\nmore", "two"], "label": 1, "final_answer_correct": False}
    assert detect([row]) is SHAPES["processbench"]
    check_read("processbench", row, ASKED, {"final": "one\nmore\n\ntwo"})  # as many steps as the row has
    steps: list[tuple[list[str], Reason]] = [(["one", " "], Reason.EMPTY_CONTENT), ([], Reason.NO_MESSAGES)]
    check_refused("processbench", [(row | {"steps": each}, reason) for each, reason in steps])


def test_each_of_several_responses_is_judged_or_refused() -> None:
    llmbar = {"input": "q", "output_1": "a", "output_2": None, "label": 2}
    assert detect([llmbar]) is SHAPES["llmbar"]
    completions = [{"model": "m", "custom_system_prompt": "Be brief.", "response": text} for text in ["a", "", "c"]]
    cases: list[tuple[str, dict[str, Any], dict[str, str], dict[str, Reason]]] = [
        ("llmbar", llmbar, {"output_1": "a"}, {"output_2": Reason.EMPTY_CONTENT}),
        ("judgebench", {"question": "q", "response_A": "a", "response_B": ""}, {"A": "a"}, {"B": Reason.EMPTY_CONTENT}),
        ("judgebench", {}, {}, {"A": Reason.MISSING_FIELD, "B": Reason.MISSING_FIELD}),
        (
            "ultrafeedback",
            {"instruction": "q", "completions": completions},
            {"completions[0]": "a", "completions[2]": "c"},
            {"completions[1]": Reason.EMPTY_CONTENT},
        ),
        (
            "prompt-responses",
            {"prompt": "q", "responses": ["a", " ", reply("c"), ["d", "e"]]},
            {"responses[0]": "a", "responses[2]": "c"},
            {"responses[1]": Reason.EMPTY_CONTENT, "responses[3]": Reason.WRONG_TYPE},
        ),
        ("prompt-responses", {"prompt": "q", "responses": "a"}, {}, {"final": Reason.WRONG_TYPE}),
    ]
    for name, row, responses, reasons in cases:
        row_requests = read(name, row)
        assert (judged(row_requests), refused(row_requests)) == (responses, reasons)
        assert all(context == ASKED for context in contexts(row_requests))


# --- real data -----------------------------------------------------------------------------------------------------


def published(name: str) -> list[dict[str, Any]]:
    data = (shared_data() / "formats" / name).read_bytes()
    rows: list[dict[str, Any]] = json.loads(data) if name.endswith(".json") else [parse(line) for line in data.splitlines()]
    return rows


def test_rows_as_published() -> None:
    for file, name, count, responses in (
        ("nemo-aligner_test-rm.jsonl", "written-out", 8, 8),
        ("nemo-aligner_dummy-dpo.jsonl", "nemo-preference", 100, 200),
        ("sharegpt_ranking_40.json", "sharegpt-preference", 40, 80),
    ):
        rows = published(file)
        assert detect(rows) is SHAPES[name]
        row_requests = [read(name, row) for row in rows]
        assert (len(row_requests), sum(len(row.names) for row in row_requests)) == (count, responses)
        assert not any(row.rejected for row in row_requests)
        assert "<extra_id_" not in "".join(repr((judged(row), contexts(row))) for row in row_requests)


def test_a_regression_row_comes_back_from_its_turns() -> None:
    for row in published("nemo-aligner_test-rm.jsonl"):
        (request,) = read("written-out", row).requests
        system, *turns = request.context
        spoken = "".join(f"<extra_id_1>{turn.role.title()}\n{turn.content}\n" for turn in turns)
        end = f"<extra_id_1>Assistant\n{request.responses[0].content}\n<extra_id_2>"
        assert f"<extra_id_0>System\n{system.content}\n{spoken}{end}" == row["text"]


def test_a_sharegpt_pair_as_published_keeps_its_sides_and_its_context() -> None:
    roles = {"human": "user", "gpt": "assistant", "system": "system"}
    for row in published("sharegpt_ranking_40.json"):
        context = [(roles[turn["from"]], turn["value"]) for turn in row["conversations"]]
        check_read("sharegpt-preference", row, context, {side: row[side]["value"] for side in ("chosen", "rejected")})
