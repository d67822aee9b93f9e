"""Agents' trajectories: every form of a conversation is the same requests, and nothing is judged in a context with a gap."""

import json
from typing import Any

import pytest

from actors.records import Reason, Reasoning
from actors.text.reasoning import without_reasoning
from pipelines.data.formats import RowRequests, detect, requests
from pipelines.data.formats.lines import MAX_DEPTH
from pipelines.data.formats.registry import Turns
from tests.support.parsed_rows import contexts, judged, refused, reply, user
from tests.support.trajectories import (
    ANSWER,
    FLAT_TOOLS,
    FORMS,
    INPUT,
    ITEMS,
    OUTPUT,
    QUESTION,
    SYSTEM,
    TOOLS,
    atif,
    call,
    called,
    invocation,
    output,
    record,
    rollout,
    step,
    written,
)


def read(row: dict[str, Any], turns: Turns = "all") -> RowRequests:
    return requests(detect([row]), row, turns)


def details(row_requests: RowRequests) -> dict[str, str]:
    return {response.name: response.detail for response in row_requests.rejected}


def test_a_conversation_is_the_same_requests_in_every_form() -> None:
    for row, names in FORMS.values():
        every, last = read(row), read(row, "final")
        assert (every.names, every.rejected) == (names, ())
        expected = [read(FORMS["messages"][0]).requests, read(FORMS["messages"][0], "final").requests]
        for row_requests, same in zip((every, last), expected, strict=True):
            assert [request.prompt_hash for request in row_requests.requests] == [request.prompt_hash for request in same]
            for request, other in zip(row_requests.requests, same, strict=True):
                assert (request.context, request.tools) == (other.context, other.tools)
                assert [(turn.content, turn.calls) for turn in request.responses] == [
                    (turn.content, turn.calls) for turn in other.responses
                ]
        assert set(last.names) <= {names[-1], "final"}


def test_reasoning_belongs_to_the_turn_that_it_comes_before() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up."}], "encrypted_content": "x"}
    hidden: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "x"}
    rows = [
        rollout([thought, call(), output(), hidden, written()]),
        atif(step(1, "user", QUESTION), called(2, reasoning_content="Look it up."), step(3, "agent", ANSWER)),
    ]
    for row in rows:
        row_requests = read(row)
        first, last = judged(row_requests).values()
        assert (first.strip(), last) == ("<think>\nLook it up.\n</think>", ANSWER)
        for request in row_requests.requests:
            handled = without_reasoning(request, Reasoning.STRIP)
            assert handled.refused == frozenset()
            texts = [turn.content for turn in handled.request.context]
            texts += [response.content for response in handled.request.responses]
            assert not any("Look" in text for text in texts)
            assert [turn.calls for turn in handled.request.context] == [turn.calls for turn in request.context]
            assert [turn.calls for turn in handled.request.responses] == [turn.calls for turn in request.responses]
            assert without_reasoning(request, Reasoning.REJECT).refused == {0}


def test_no_text_of_reasoning_is_lost_or_runs_into_the_next() -> None:
    def thought(**parts: object) -> dict[str, Any]:
        return {"type": "reasoning", "summary": [], **parts}

    text = {"type": "summary_text", "text": "b"}
    for items in (
        [thought(summary=["a", text]), written("x")],
        [thought(content=["a"]), written("") | {"reasoning_content": "b"}, written("x")],
        [written("") | {"reasoning": "a"}, written("x") | {"reasoning_content": "b"}],
    ):
        (response,) = judged(read({"input": "q", "output": items})).values()
        assert response.split() == ["<think>", "a", "b", "</think>", "x"]


def test_a_turn_is_all_items_of_the_assistant_in_a_row() -> None:
    items = [written("I look."), call("a"), call("b"), output("b"), output("a"), written("So."), written("It is.")]
    row_requests = read({"input": "q", "instructions": "Be brief.", "output": items})
    assert judged(row_requests) == {"output[2]": "I look.", "output[6]": "So.\n\nIt is."}
    first, last = row_requests.requests
    assert contexts(row_requests)[0] == [("system", "Be brief."), ("user", "q")]
    assert [call.id for call in first.responses[0].calls] == ["a", "b"]
    assert [turn.call_id for turn in last.context] == [None, None, None, "b", "a"]
    inline = reply("", tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
    (request,) = read({"input": "q", "output": [inline | {"type": "message"}, call("d")]}).requests
    assert [call.id for call in request.responses[0].calls] == ["c", "d"]


def test_every_agent_is_judged_in_its_own_context_and_once() -> None:
    sub = [user("Oslo?"), written("Rain.")]
    observed = record(invocation(sub, "sub/1", "root"), invocation([*INPUT, *ITEMS]), invocation([], "lost", "root"))
    row = rollout(ITEMS, ng_trajectory=observed)
    row_requests = read(row)
    assert row_requests.names == ("root/conversation[2]", "root/conversation[4]", "sub/1/conversation[1]", "lost/final")
    assert refused(row_requests) == {"lost/final": Reason.NO_MESSAGES}
    assert contexts(row_requests)[-1] == [("user", "Oslo?")]
    assert [len(request.tools) for request in row_requests.requests] == [1, 1, 0]
    assert read(row, "final").names == ("root/conversation[4]", "sub/1/conversation[1]", "lost/final")

    inner = atif(step(1, "user", "Deeper?"), step(2, "agent", "Yes."), trajectory_id="b")
    child = atif(step(1, "user", "Oslo?"), step(2, "agent", "Rain."), trajectory_id="a", subagent_trajectories=[inner])
    row = atif(step(1, "user", "q"), called(2), step(3, "agent", "a"), subagent_trajectories=[child])
    assert judged(read(row)) == {"step[2]": "", "step[3]": "a", "a/step[2]": "Rain.", "a/b/step[2]": "Yes."}
    for broken in ({"trajectory_id": None}, {"trajectory_id": 5}):
        assert (
            "a sub-agent whose trajectory_id is" in details(read(row | {"subagent_trajectories": [child | broken]}))["final"]
        )
    twice = read(row | {"subagent_trajectories": [child, child]})
    assert details(twice) == {"final": "two agents or turns with the same ids: 'a/'"}


def test_what_an_agent_did_not_make_here_is_context_and_not_judged() -> None:
    steps = [
        step(1, "user", "old", is_copied_context=True),
        step(2, "agent", "old answer", is_copied_context=True),
        step(3, "user", "new"),
        called(4, llm_call_count=0),
        step(5, "agent", "new answer"),
    ]
    row_requests = read(atif(*steps))
    assert judged(row_requests) == {"step[5]": "new answer"}
    assert [turn for _, turn in contexts(row_requests)[0]] == ["old", "old answer", "new", "", OUTPUT]
    assert refused(read(atif(*steps[:4]))) == {"final": Reason.NO_FINAL_ASSISTANT}

    prompt = [user("old"), reply("old answer"), user("new")]
    turns = [{"invocation_id": "root", "turn_no": number, "question": prompt + ITEMS[: 2 * number - 2]} for number in (1, 2)]
    assert read(record(invocation([*prompt, *ITEMS]), turns=turns)).names == ("root/conversation[3]", "root/conversation[5]")
    assert judged(read({"input": prompt, "output": [written("a")]})) == {"output[0]": "a"}


def test_a_root_is_shown_what_the_request_holds_and_is_not_judged_by_it() -> None:
    given = [user("old"), reply("old answer"), user("new")]
    request = {"input": given, "instructions": "Be brief.", "tools": FLAT_TOOLS}
    items = [{"type": "message", "status": None, **item} for item in given] + ITEMS
    turns = [{"invocation_id": "root", "turn_no": 1, "question": "new"}]
    for more in ([], [SYSTEM]):
        observed = record(invocation([*more, *items]), turns=turns)
        row_requests = read(
            rollout(ITEMS, ng_trajectory=observed, responses_create_params=request | {"input": more + given})
        )
        assert contexts(row_requests)[0] == [
            ("system", "Be brief."), ("user", "old"), ("assistant", "old answer"), ("user", "new"),
        ]  # fmt: skip
        assert row_requests.names == tuple(f"root/conversation[{len(more) + place}]" for place in (3, 5))

    two = record(invocation(items), invocation(items, "two"), invocation(items, "sub", "root"))
    row_requests = read(rollout(ITEMS, ng_trajectory=two, responses_create_params=request), "final")
    assert refused(row_requests) == {"two/conversation[5]": Reason.CONTEXT_GAP}
    assert [len(request.tools) for request in row_requests.requests] == [1, 0]
    (lone,) = read(rollout(ITEMS, ng_trajectory=record(invocation(items, "sub", "lost"))), "final").requests
    assert lone.tools == ()
    assert read(two, "final").rejected == ()


def test_a_row_s_tools_are_those_of_its_first_agent() -> None:
    steps = [step(1, "user", "q"), step(2, "agent", "a")]
    child = atif(*steps, trajectory_id="sub", agent={"name": "b"})
    row = atif(*steps, agent={"name": "a"}, subagent_trajectories=[child], tools=TOOLS)
    assert [len(request.tools) for request in read(row).requests] == [1, 0]
    row_requests = read({"input": "q", "output": [written("a")], "tools": json.dumps(TOOLS)})
    assert [len(request.tools) for request in row_requests.requests] == [1]


def test_a_field_of_a_task_is_no_system_prompt_of_its_agent() -> None:
    """Gym's newton_bench has the kind of its equation in `system`."""
    for form in ("responses", "gym-rollout", "ng_trajectory", "atif"):
        row, _ = FORMS[form]
        assert read(row | {"system": "vanilla_equation"}) == read(row)


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"previous_response_id": "resp_0"}, "previous_response_id 'resp_0', whose turns aren't in the row"),
        ({"conversation": {"id": "conv_0"}}, "conversation 'conv_0'"),
        ({"prompt": {"id": "pmpt_0", "version": "2"}}, "prompt 'pmpt_0'"),
        ({"previous_response_id": None, "conversation": "7", "prompt": "q"}, ""),
    ],
)
def test_turns_that_a_server_keeps_are_a_gap(more: dict[str, Any], detail: str) -> None:
    request = {"input": INPUT, **more}
    observed = record(invocation([*INPUT, *ITEMS]))
    for row in (
        request | {"output": ITEMS},
        rollout(ITEMS, responses_create_params=request),
        rollout(ITEMS, responses_create_params=request, ng_trajectory=observed),
    ):
        row_requests = read(row)
        assert set(refused(row_requests).values()) == ({Reason.CONTEXT_GAP} if detail else set())
        assert all(message.startswith(detail) for message in details(row_requests).values())


GAPS: list[tuple[dict[str, Any], str]] = [
    ({"code": "agent_artifact_record_unparseable"}, "agent_artifact_record_unparseable"),
    ({"code": "multimodal_history_redacted", "invocation_id": "root", "detail": "3"}, "multimodal_history_redacted 3"),
    ({"code": "compaction_outcome_unavailable", "invocation_id": "root"}, "compaction_outcome_unavailable"),
    ({"code": "compaction_timestamp_missing", "invocation_id": "root"}, "compaction_timestamp_missing"),
    ({"code": "a_code_of_next_year"}, "a_code_of_next_year"),
    ({"code": None}, "None"),
]
HARMLESS = [
    *("model_calls_unavailable", "model_call_reference_unmatched", "model_response_id_missing", "turns_unavailable"),
    *("resolution_unavailable", "tool_timing_unavailable", "tool_result_timestamp_missing", "tool_outcome_unavailable"),
    *("subagent_hierarchy_unavailable", "ambiguous_subagent_relation", "producer_trajectory_identity_mismatch"),
    *("no_sandbox_runtime", "invocation_outcome_unavailable", "agent_run_timeout", "tool_result_missing"),
]


def test_a_gap_in_what_an_agent_was_shown_refuses_its_turns_and_no_other_agents() -> None:
    child = invocation([user("Oslo?"), written("Rain.")], "sub", "root")
    for gap, detail in GAPS:
        row_requests = read(record(invocation([*INPUT, *ITEMS]), child, gaps=(gap,)))
        reached = ["sub/conversation[1]"] if gap.get("invocation_id") is None else []
        names = ["root/conversation[2]", "root/conversation[4]", *reached]
        assert refused(row_requests) == dict.fromkeys(names, Reason.CONTEXT_GAP)
        assert details(row_requests) == dict.fromkeys(names, detail)
    gaps = tuple({"code": code, "invocation_id": None} for code in HARMLESS)
    assert read(record(invocation([*INPUT, *ITEMS]), gaps=gaps)).rejected == ()
    compacted = {"records": [{"kind": "context_compaction", "invocation_id": "root"}, {"kind": "tool_call"}]}
    observed = record(invocation([*INPUT, *ITEMS]), child)
    row_requests = read(rollout(ITEMS, ng_trajectory=observed, ng_agent_observations=compacted))
    assert (list(judged(row_requests)), set(refused(row_requests).values())) == (
        ["sub/conversation[1]"],
        {Reason.CONTEXT_GAP},
    )
    empty = record(gaps=({"code": "conversation_unavailable"},))
    assert read(rollout(ITEMS, ng_trajectory=empty)).names == ("output[0]", "output[2]")


CHANGES: list[dict[str, Any]] = [
    {"extra": {"context_management": {"type": "compaction", "boundary": "replace"}}},
    {"extra": {"context_management": {"type": "own"}}},
    {"observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "summary"}]}]}},
]


def test_a_context_that_was_replaced_refuses_the_later_turns_alone() -> None:
    for change in CHANGES:
        steps = [
            step(1, "user", "q"),
            step(2, "agent", "a"),
            step(3, "system", "Summed up.", **change),
            step(4, "agent", "b"),
        ]
        row_requests = read(atif(*steps))
        assert (judged(row_requests), refused(row_requests)) == ({"step[2]": "a"}, {"step[4]": Reason.CONTEXT_GAP})
        assert details(row_requests) == {"step[4]": "step 3 changes the context of all later ones"}
    added = step(3, "system", "Mind the time.", extra={"context_management": {"type": "injection", "boundary": "append"}})
    assert contexts(read(atif(*steps[:2], added, steps[3])))[-1][-1] == ("system", "Mind the time.")


DEEP: Any = "x"
for _ in range(MAX_DEPTH - 20):
    DEEP = [DEEP]

LATER = [written("b")]
CALLS: list[tuple[list[Any], dict[str, Reason], str]] = [
    ([call(), written("a")], {}, ""),
    (
        [call(), user("so?"), *LATER],
        {"output[2]": Reason.CONTEXT_GAP},
        "the call 'call_1' has no output before the next turn",
    ),
    (
        [call(), output(), output(), *LATER],
        {"output[3]": Reason.TOOL_CALL},
        "an output of the call 'call_1', which waits for",
    ),
    (
        [call(), output("other"), *LATER],
        {"output[2]": Reason.TOOL_CALL},
        "an output of the call 'other', which waits for none",
    ),
    ([call(), output(None), *LATER], {"output[2]": Reason.TOOL_CALL}, "an output of the call None, which waits for none"),
    ([call(None), output(None), *LATER], {}, ""),
    ([call("a"), call("b"), output("a"), *LATER], {"output[3]": Reason.CONTEXT_GAP}, "the call 'b' has no output before"),
    ([call(), output(text=""), *LATER], {}, ""),
    ([call(), output(text=[{"type": "input_text", "text": "rain"}]), *LATER], {}, ""),
    (
        [call(), output(text=None), *LATER],
        {"output[2]": Reason.CONTEXT_GAP},
        "an output of the call 'call_1' without content",
    ),
    ([call(), {"role": "tool", **output(text="")}, *LATER], {}, ""),
    ([call(), output(text=[{"type": "input_image"}]), *LATER], {"output[2]": Reason.CONTENT_NOT_TEXT}, "a part that isn't"),
    ([call(arguments="{broken"), output(), *LATER], dict.fromkeys(("output[0]", "output[2]"), Reason.TOOL_CALL), "JSON"),
    ([call(arguments='{"a": "%s"}' % ("x" * 2**20))], {"output[0]": Reason.TOOL_CALL}, "1,048,585 characters"),
    ([call(arguments={"a": DEEP})], {}, ""),
    (
        [{"type": "web_search_call", "status": "completed"}, *LATER],
        {"output[1]": Reason.WRONG_TYPE},
        "'web_search_call'; known",
    ),
    ([call(), {"type": "computer_call_output"}, *LATER], {"output[2]": Reason.WRONG_TYPE}, "'computer_call_output'; known"),
    ([5, *LATER], {"output[1]": Reason.WRONG_TYPE}, "a number, 5 where an item is expected"),
    ([{}, *LATER], {"output[1]": Reason.WRONG_TYPE}, "an item of type 'None'"),
    ([{"type": "message", "content": "x"}, *LATER], {"output[1]": Reason.MISSING_FIELD}, "role, in an object"),
    ([{"role": "narrator", "content": "x"}, *LATER], {"output[1]": Reason.UNKNOWN_ROLE}, "'narrator'"),
]


@pytest.mark.parametrize(("items", "reasons", "detail"), CALLS)
def test_a_turn_is_refused_for_what_is_wrong_before_it(items: list[Any], reasons: dict[str, Reason], detail: str) -> None:
    row_requests = requests(detect([rollout(items)]), rollout(items), "all")
    assert refused(row_requests) == reasons
    assert all(detail in message for message in details(row_requests).values())
    assert len(row_requests.names) == len(reasons) + len(judged(row_requests))


STEPS = [step(1, "user", "q"), called(2), step(3, "agent", "a")]
BROKEN: list[tuple[dict[str, Any], dict[str, Reason], str]] = [
    (atif(*STEPS, schema_version="ATIF-v2.0"), {"final": Reason.WRONG_TYPE}, "known are ATIF-v1.0 to ATIF-v1.7"),
    (record(invocation(ITEMS), schema_version="2.0"), {"final": Reason.WRONG_TYPE}, "'2.0'; known is '1.0'"),
    (rollout(ITEMS, ng_trajectory=record(schema_version=None)), {"final": Reason.WRONG_TYPE}, "schema_version is null"),
    (record(), {"final": Reason.NO_MESSAGES}, ""),
    (record(invocation(ITEMS), invocation(ITEMS)), {"final": Reason.WRONG_TYPE}, "the same ids: 'root/'"),
    (record(invocation(ITEMS, name=None)), {"final": Reason.WRONG_TYPE}, "whose invocation_id is null"),  # type: ignore[arg-type]
    (atif(STEPS[0], called(2, content=None), STEPS[2]), {"step[3]": Reason.CONTEXT_GAP}, "'call_1' without content"),
    (atif(STEPS[0], step(2, "tool", "x"), STEPS[2]), {"step[3]": Reason.UNKNOWN_ROLE}, "known are system, user, agent"),
    (atif(*STEPS[:2], STEPS[1]), {"final": Reason.WRONG_TYPE}, "the same ids: 'step[2]'"),
    (atif(STEPS[0], STEPS[2] | {"step_id": None}), {"final": Reason.WRONG_TYPE}, "whose step_id is null"),
    (atif(STEPS[0], STEPS[2] | {"tool_calls": 5}), {"step[3]": Reason.WRONG_TYPE}, "where a list of objects is expected"),
    (atif(*STEPS, agent={"tool_definitions": [{"type": "mcp"}, {"name": 5}]}), {}, ""),
]


@pytest.mark.parametrize(("row", "reasons", "detail"), BROKEN)
def test_a_broken_trajectory_is_refused_with_what_is_wrong(
    row: dict[str, Any], reasons: dict[str, Reason], detail: str
) -> None:
    row_requests = read(row)
    if not reasons:
        assert set(refused(row_requests).values()) == {Reason.TOOL_CALL}
        assert set(refused(row_requests)) == set(row_requests.names) == {"step[2]", "step[3]"}
        return
    assert reasons.items() <= refused(row_requests).items()
    assert all(detail in details(row_requests)[name] for name in reasons)
    assert "step[2]" not in refused(row_requests)
