"""Conversations as JSON in a text and as maps of Arrow, where turns are expected."""

import json
from typing import Any

import pyarrow as pa
import pytest

from actors.errors import SourceError
from actors.records import Reason
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.formats import PROMPT_SHAPES, SHAPES, OwnColumns, RowShape, detect, explain_detection, requests
from tests.support.parsed_rows import contexts, judged, refused, reply, user

TURNS = [user("q"), reply("a")]
TEXT = json.dumps(TURNS)


@pytest.mark.parametrize("key", ["messages", "conversations", "conversation"])
def test_a_conversation_in_a_text_is_the_conversation(key: str) -> None:
    row = {key: TEXT, "tools": "[]"}
    shape = detect([row])
    assert shape is detect([{key: TURNS}])
    assert explain_detection(shape, [row]).startswith(f"{shape.name}: 1 of 1 rows have")
    assert (contexts(requests(shape, row)), judged(requests(shape, row))) == ([[("user", "q")]], {"final": "a"})
    assert judged(requests(shape, row, "all")) == {"turn[1]": "a"}
    assert contexts(requests(detect([row], PROMPT_SHAPES), row)) == [[("user", "q")]]
    assert judged(RowShape("mixed").requests(row)) == {"final": "a"}


def test_sides_and_named_columns_in_a_text_are_conversations() -> None:
    sides = {"conversation_a": TEXT, "conversation_b": json.dumps([user("q"), reply("b")])}
    assert judged(requests(detect([sides]), sides)) == {"conversation_a": "a", "conversation_b": "b"}
    rows: dict[str, Any] = {
        "trajectory": {"trajectory": TEXT},
        "log": {"log": TEXT},
        "logs.log": {"logs": {"log": TEXT}},
        "logs[0].log": {"logs": [{"log": TEXT}]},
    }
    for path, row in rows.items():
        own_columns = OwnColumns(None, None, conversations=(path,))
        assert judged(requests(own_columns.shape(), row)) == {"final": "a"}
        assert judged(requests(own_columns.shape(), row, "all")) == {"turn[1]": "a"}


def test_a_prompt_and_a_response_are_what_they_say() -> None:
    row = {"prompt": TEXT, "response": TEXT}
    assert (contexts(requests(detect([row]), row)), judged(requests(detect([row]), row))) == (
        [[("user", TEXT)]],
        {"final": TEXT},
    )


@pytest.mark.parametrize("text", ["[", "[1]", "[]", '["q"]', "hi", '{"role": "user"}', TEXT[:-1], "[" * 5000, str(TURNS)])
def test_another_text_is_no_conversation(text: str) -> None:
    assert refused(requests(SHAPES["messages"], {"messages": text})) == {"final": Reason.WRONG_TYPE}
    with pytest.raises(SourceError, match="no known shape"):
        detect([{"messages": text}])


def test_maps_are_messages() -> None:
    """As Spark writes them: array<map<string,string>>."""
    turn_type = pa.map_(pa.string(), pa.string())
    chats = pa.array([[list(turn.items()) for turn in TURNS]], pa.list_(turn_type))
    (row,) = python_rows(pa.table({"messages": chats}))
    assert (contexts(requests(detect([row]), row)), judged(requests(detect([row]), row))) == (
        [[("user", "q")]],
        {"final": "a"},
    )
    sides = [pa.array([list(reply(text).items())], turn_type) for text in "ab"]
    pair: dict[str, Any] = dict(zip(("chosen", "rejected"), sides, strict=True))
    (row,) = python_rows(pa.table({"prompt": pa.array([[list(user("q").items())]], pa.list_(turn_type)), **pair}))
    assert judged(requests(detect([row]), row)) == {"chosen": "a", "rejected": "b"}


def test_other_maps_stay_as_they_are() -> None:
    column = pa.array([[({"a": 1}, "x")]], pa.map_(pa.struct([("a", pa.int64())]), pa.string()))
    row = {"messages": TURNS, **python_rows(pa.table({"by_key": column}))[0]}
    assert judged(requests(detect([row]), row)) == {"final": "a"}
