"""Rows of several shapes in one corpus: each is read in its own, or not at all."""

import pytest

from actors.errors import SourceError
from actors.records import Reason
from pipelines.data.formats import (
    MIXED,
    PROMPT_SHAPES,
    SHAPES,
    RowShape,
    check_mixed,
    detect,
    explain_detection,
    formats,
    prompt_formats,
    requests,
)
from tests.pipelines.data.formats.test_detection import CHAT, EXAMPLES, PROMPTS, SIDES
from tests.support.parsed_rows import contexts, refused

SINGLE = {"prompt": "q", "response": "a"}
AMBIGUOUS = {"prompt": "q", "response": "a", "completion": "b"}


def test_a_row_is_read_in_the_one_shape_that_it_has() -> None:
    for turns in ("final", "all"):
        for name, row in EXAMPLES:
            result = RowShape(MIXED, turns).requests(row)
            alone = requests(SHAPES[name], row, turns if SHAPES[name].read_turns else "final")
            assert (result.shape, alone.shape) == (name, None)
            assert (result.names, result.requests, result.rejected) == (alone.names, alone.requests, alone.rejected)
            assert RowShape(MIXED, turns).of_row(name).requests(row) == alone


def test_a_null_is_a_field_that_the_row_does_not_have() -> None:
    """As in Parquet, where each row has the columns of all others."""
    for name, row in EXAMPLES:
        for _, other in EXAMPLES:
            result = RowShape(MIXED).requests({**dict.fromkeys(other), **row})
            assert (result.shape, result.requests, result.rejected) == (name, requests(SHAPES[name], row).requests, ())


def test_a_shape_that_needs_a_null_to_be_seen_has_it() -> None:
    result = RowShape(MIXED).requests({"question": "q", "response_A": "a", "response_B": None, "prompt": None})
    assert (result.shape, refused(result)) == ("judgebench", {"B": Reason.EMPTY_CONTENT})


def test_a_prompt_is_read_in_its_shape_too() -> None:
    for name, row in PROMPTS:
        result = RowShape(MIXED, unanswered=True).requests(row)
        assert (result.shape, contexts(result)) == (name, [[("user", "q")]])
        assert RowShape(MIXED, unanswered=True).of_row(name).requests(row).requests == result.requests


def test_what_has_no_shape_or_two_is_rejected_and_has_none() -> None:
    cases: list[tuple[object, Reason]] = [
        ({"text": "x"}, Reason.MISSING_FIELD),
        ({}, Reason.MISSING_FIELD),
        ({"prompt": "q"}, Reason.MISSING_FIELD),
        ({"messages": "hello"}, Reason.MISSING_FIELD),
        ({"prompt": "q", "response": 7}, Reason.MISSING_FIELD),
        (AMBIGUOUS, Reason.TWO_SHAPES),
        (CHAT | SINGLE, Reason.TWO_SHAPES),
        ("text", Reason.NOT_AN_OBJECT),
    ]
    for row, reason in cases:
        result = RowShape(MIXED).requests(row)
        assert (refused(result), result.requests, result.shape) == ({"final": reason}, (), None)


def test_a_row_of_a_shape_that_cannot_be_read_still_has_it() -> None:
    result = RowShape(MIXED).requests({"messages": [{"role": "user", "content": "q"}]})
    assert (refused(result), result.shape) == ({"final": Reason.NO_FINAL_ASSISTANT}, "messages")


def test_principles_are_shown_or_refused_in_every_shape() -> None:
    shape = RowShape(MIXED, columns=(("principle", "rubric"),))
    assert [request.principles for request in shape.requests(SINGLE | {"rubric": "Be kind."}).requests] == [("Be kind.",)]
    result = shape.requests(CHAT | {"rubric": 5})
    assert (refused(result), result.requests, result.shape) == ({"final": Reason.WRONG_TYPE}, (), "messages")


@pytest.mark.parametrize("rows", [[CHAT, SINGLE], [CHAT] * 8 + [SINGLE] * 2, [CHAT] * 9 + [AMBIGUOUS], [CHAT, None]])
def test_a_sample_that_can_be_read_by_row_passes(rows: list[object]) -> None:
    check_mixed(rows, SHAPES)


@pytest.mark.parametrize("rows", [[{"text": "x"}], [CHAT, SINGLE, None, {}, 5], [None]])
def test_a_sample_mostly_of_no_shape_is_refused(rows: list[object]) -> None:
    with pytest.raises(SourceError, match="no known shape fits these rows"):
        check_mixed(rows, SHAPES)


def test_a_sample_of_rows_with_two_shapes_each_is_refused_by_their_names() -> None:
    rows = [CHAT] * 6 + [AMBIGUOUS] * 2 + [CHAT | SINGLE]
    with pytest.raises(SourceError) as refusal:
        check_mixed(rows, SHAPES)
    assert str(refusal.value) == (
        "these rows fit more than one shape each: prompt-completion and prompt-response (2 of 9 rows), "
        "messages and prompt-response (1 of 9 rows). Choose one with --format NAME"
    )


def test_detection_names_mixed_where_it_would_help() -> None:
    hint = "Choose one with --format NAME, or read each row in its own shape with --format mixed"
    with pytest.raises(SourceError, match=rf"messages \(2 of 3 rows\), prompt-response \(1 of 3 rows\)\. {hint}$"):
        detect([CHAT, CHAT, SINGLE])
    with pytest.raises(SourceError, match=r"Choose one with --format NAME$"):
        detect([AMBIGUOUS, AMBIGUOUS])


def test_detection_finds_a_shape_beside_columns_of_nulls() -> None:
    nulls = dict.fromkeys(["prompt", "chosen", "rejected", "question", "response_A", "response_B"])
    assert detect([{**nulls, **CHAT}]) is SHAPES["messages"]
    with pytest.raises(SourceError, match=r"--format mixed$"):
        detect([{**nulls, **CHAT}, {**nulls, "messages": None, "prompt": "q", **SIDES}])


def test_a_user_hears_how_many_rows_each_shape_has() -> None:
    rows: list[object] = [CHAT, SINGLE, SINGLE, None, AMBIGUOUS, SINGLE]
    assert explain_detection(formats()[MIXED], rows) == "mixed: 3 prompt-response, 2 of none or two, 1 messages, of 6 rows"
    assert explain_detection(formats()[MIXED], []) == "mixed: there are no rows to look at"


def test_no_shape_has_the_name_of_all() -> None:
    assert MIXED not in {*SHAPES, *PROMPT_SHAPES}
    assert (formats().keys() - SHAPES, prompt_formats().keys() - PROMPT_SHAPES) == ({MIXED}, {MIXED})
