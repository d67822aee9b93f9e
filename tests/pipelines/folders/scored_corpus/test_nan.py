"""NaN is null in every condition and ranking, which DuckDB alone would take for the largest number."""

import json
import math
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import ExpressionError
from pipelines.folders.run_folder.carried_columns import scalar_column
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.scored_corpus.expressions import Condition, Evaluator, Ranking
from pipelines.results.filtering.filter_step import ResponseEvaluator
from pipelines.settings.filter_settings import ChoiceSettings
from tests.support.examples import examples

NAN, INF = math.nan, math.inf

ROWS = pa.table(
    {
        "quality": [0.75, NAN, None, INF, -INF],
        "small": pa.array([0.75, NAN, None, INF, -INF], pa.float32()),
        "meta": [
            {"q": 0.75, "in": {"q": 1.0}},
            {"q": NAN, "in": {"q": NAN}},
            None,
            {"q": INF, "in": None},
            {"q": None, "in": {}},
        ],
        "parts": [[0.75, 1.0], [NAN, 1.0], None, [], [None, INF]],
        "pair": pa.array([[0.75, 1.0], [NAN, 1.0], None, [INF, NAN], [1.0, -INF]], pa.list_(pa.float64(), 2)),
        "named": pa.array([[("a", 0.75)], [("a", NAN)], None, [("a", INF)], []], pa.map_(pa.string(), pa.float64())),
        "turns": [[{"w": 0.75}], [{"w": NAN}], None, [{"w": INF}], [None]],
        "text": ["0.75", "NaN", None, "inf", "-inf"],
        "n": pa.array([1, 0, None, 0, 1], pa.int64()),
    }
)


def met(text: str, rows: pa.Table = ROWS) -> list[bool | None]:
    condition = Condition.check(text, rows.schema)
    return Evaluator({"met": condition.sql}, condition.columns, condition.flat)(rows).column("met").to_pylist()


def test_nan_is_neither_more_nor_less_than_anything() -> None:
    numbers: list[str] = ["quality", "small", "meta.q", "meta['q']", "named['a']", "turns[1].w", "pair[1]", "-(-quality)"]
    numbers += ["try_cast(text as double)", "try_cast(text as float)", "quality * 1", "list_extract(parts, 1)"]
    numbers += ["coalesce(quality, null)", "case when true then quality end", "greatest(quality, small)"]
    for number in numbers:
        compared = [f"{number} > 0.5", f"0.5 > {number}", f"{number} = {number}", f"{number} between -1e300 and 1e300"]
        compared += [f"{number} in (0.75, 1)", f"{number} <> 0.5", f"{number} >= 'nan'::double"]
        for text in compared:
            assert [met(text)[1], met(f"not ({text})")[1]] == [None, None], text


def test_nan_in_a_column_is_null() -> None:
    for number in ("quality", "small", "meta.q", "named['a']", "turns[1].w", "pair[1]", "meta['in'].q"):
        assert met(f"{number} is null")[:3] == [False, True, True]
        assert met(f"{number} is not null and {number} > 0.5")[:3] == [True, False, False]
        assert met(f"coalesce({number}, 0) > 0.5")[:3] == [True, False, False]
        assert met(f"isnan({number})")[:3] == [False, None, None]


def test_infinities_are_numbers() -> None:
    for number in ("quality", "small", "try_cast(text as double)"):
        assert met(f"{number} > 1e308")[3:] == [True, False]
        assert met(f"{number} = 'inf'::double")[3:] == [True, False]


def test_what_a_list_holds_is_summed_up_without_it() -> None:
    assert met("list_max(parts) > 1.5") == [False, False, None, None, True]
    assert met("len(list_filter(parts, lambda x: x > 0.9)) > 0") == [True, True, None, False, True]
    assert met("list_contains(parts, 'nan'::double)")[1] is False
    assert met("meta is null") == [False, False, True, False, False]
    assert met("len(parts) = 2") == [True, True, None, False, True]
    assert met("cardinality(named) = 1") == [True, True, None, True, False]
    assert met("list_max(pair) > 0.9") == [True, True, None, True, True]


def test_what_is_computed_to_nan_is_compared_as_null() -> None:
    rows = pa.table({"a": [0.0, 1.0, INF], "b": [0.0, 0.0, INF]})
    assert met("a / b > 0.5", rows) == [None, True, None]
    assert met("not (a / b <= 0.5)", rows) == [None, True, None]
    assert met("a - b < 0.5 or true", rows) == [True, True, True]
    assert met("coalesce(a - b, 7) = 7", rows) == [False, False, True]
    assert met("a / b in (1, 2)", rows) == [None, False, None]
    assert met("case when a > 0 then a / b else 0 end > 0.5 -- a comment", rows) == [False, True, None]


EXTREMES = [
    ("{}(a, b) >= 2", [True, None, None]),
    ("not ({}(a, b, 9) >= 2)", [False, None, None]),
    ("coalesce({}(a, b), -1) = -1", [False, True, True]),
    ("{}(a, b / 1) >= 2", [True, None, None]),
    ("{}(a, least(b, 5)) >= 2", [True, None, None]),
    ("{}(named['x'], named['y']) >= 2", [True, None, None]),
    ("{}(n, 3) = 3", [True, None, True]),
    ("len(list_filter(parts, lambda x: {}(x, 3) = 3)) = 2", [True, False, False]),
]


@pytest.mark.parametrize(("text", "expected"), EXTREMES)
@pytest.mark.parametrize("function", ["least", "GREATEST"])
def test_the_least_and_the_greatest_of_what_is_missing_are_missing(
    text: str, expected: list[bool | None], function: str
) -> None:
    """DuckDB passes over a null: a response without one of its scores would be kept, and rank best."""
    named = pa.array([[("x", 4.0), ("y", 3.0)], [("x", 4.0)], [("x", 4.0), ("y", NAN)]], pa.map_(pa.string(), pa.float64()))
    parts = [[3.0, 3.0], [3.0, None], [NAN, 3.0]]
    rows = pa.table({"a": [4.0] * 3, "b": [3.0, None, NAN], "n": [3, None, 3], "named": named, "parts": parts})
    assert met(text.format(function), rows) == expected
    with pytest.raises(ExpressionError, match=re.escape("least(x, y)")):
        met("a.least(b) > 2", rows)


def test_a_ranking_by_the_least_of_a_missing_score_is_none() -> None:
    rows = pa.table({"a": [4.0, 4.0, 1.0], "b": [3.0, None, NAN]})
    ranking = Ranking.check("least(a, b)", rows.schema)
    assert Evaluator({"value": ranking.sql}, ranking.columns)(rows).column("value").to_pylist() == [3.0, None, None]


def test_the_record_may_be_asked_as_the_columns_are() -> None:
    records = [b'{"quality": 0.75}', b'{"quality": NaN}', b'{"quality": "NaN"}']
    rows = pa.table({"record": pa.array(records, pa.large_binary())})
    assert met("try_cast(decode(record)->>'$.quality' as double) > 0.5", rows) == [True, None, None]
    assert met("not (try_cast(decode(record)->>'$.quality' as double) > 0.5)", rows) == [False, None, None]


@pytest.mark.parametrize("first", [4, 0.5, "a", True])
def test_nan_in_a_row_is_no_value_that_its_column_lacks(first: object) -> None:
    columns = Columns(pa.schema([("record", pa.large_binary()), ("x", pa.array([first]).type)]), ("score",), "")
    values: list[Any] = [first, NAN, None]
    records = pa.array([json.dumps({"x": value}).encode() for value in values], pa.large_binary())
    rows = pa.table({"record": records, "x": scalar_column(values, columns.carried.field("x").type)})
    condition = Condition.check("x is not null", columns.ours_first)
    is_met = Evaluator({"met": condition.sql}, condition.columns, condition.flat)(rows).column("met").to_pylist()
    assert is_met == [True, False, False]


def test_a_ranking_by_nan_is_none() -> None:
    rows = pa.table({"q": [0.5, NAN, INF, None], "row": ["a", "b", "c", "d"], "response_name": [""] * 4})
    rows = (
        rows.append_column("status", [["scored"] * 4])
        .append_column("reason", [[None] * 4])
        .append_column("reward", [[1.0] * 4])
    )
    for by in ("q", "q / 1", "-q", "case when q > 0 then q else 'nan'::double end"):
        evaluator = ResponseEvaluator.of(ChoiceSettings(by=by, top_fraction=0.5), "", rows.schema)
        values = evaluator.evaluate(0, 0, rows, evaluator.compile()).values.tolist()
        assert [math.isnan(value) for value in values] == [False, True, False, True]
    ranking = Ranking.check("coalesce(q, 0)", rows.schema)
    assert Evaluator({"value": ranking.sql}, ranking.columns)(rows).column("value").to_pylist() == [0.5, 0.0, INF, 0.0]


NUMBERS = st.none() | st.just(NAN) | st.floats() | st.sampled_from([INF, -INF, 0.5, -0.0])


def is_more(number: float | None, least: float) -> bool | None:
    return None if number is None or math.isnan(number) else number > least


@given(st.lists(st.tuples(NUMBERS, st.none() | st.lists(NUMBERS, max_size=3)), min_size=1, max_size=5))
@examples(60)
def test_any_number_is_compared_as_it_is_or_is_null(values: list[tuple[float | None, list[float | None] | None]]) -> None:
    numbers, lists = map(list, zip(*values, strict=True))
    kind = pa.list_(pa.float64())
    rows = pa.table({"x": pa.array(numbers, pa.float64()), "l": pa.array(lists, kind)})
    rows = rows.append_column(
        "s", pa.StructArray.from_arrays([rows["x"].combine_chunks(), rows["l"].combine_chunks()], ["x", "l"])
    )
    assert met("x > 0.5", rows) == met("s.x > 0.5", rows) == [is_more(number, 0.5) for number in numbers]
    first = [None if not inner else is_more(inner[0], 0.5) for inner in lists]
    assert met("l[1] > 0.5", rows) == met("s.l[1] > 0.5", rows) == first
