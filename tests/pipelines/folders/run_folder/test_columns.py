"""The columns of a part: what is carried over, what is ours, and that the two never meet."""

import datetime
import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import SourceError
from actors.records import Reading, Reason, Score
from pipelines.data.corpus.corpus_files import FileKind, InputFile
from pipelines.data.corpus.readers import PREPARED, RECORD, RESERVED
from pipelines.folders.run_folder.carried_columns import (
    carried_as,
    carried_columns,
    check_carried,
    scalar_column,
    types_text,
)
from pipelines.folders.run_folder.columns import Columns
from tests.support.corpora import find

any_speed = settings(deadline=None)
JSON_FILE = InputFile(0, "x", "/x", FileKind.JSONL, 0, "", 0)


def json_columns(*sample: Mapping[str, Any], prefix: str = "") -> Columns:
    return Columns(carried_columns([JSON_FILE], sample), ("score",), prefix)


def parquet_files(folder: Path, *tables: pa.Table | Mapping[str, Any]) -> list[InputFile]:
    for at, table in enumerate(tables):
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), folder / f"{at}.parquet")
    return find([str(folder)])


def types_of(*sample: Mapping[str, Any]) -> dict[str, str]:
    return {field.name: str(field.type) for field in carried_columns([JSON_FILE], sample)}


# --- carried from JSON ---------------------------------------------------------------------------------------------


def test_flat_scalars_are_carried_beside_the_record_under_names_that_columns_can_have() -> None:
    row = {"t": "x", "n": 1, "x": 0.5, "b": True, "messages": [], "o": {}, "nothing": None}
    assert types_of(row) == {RECORD: "large_binary", "t": "string", "n": "int64", "x": "double", "b": "bool"}
    assert types_of() == {RECORD: "large_binary"}
    row = json.loads(r'{"\ud800": 1, "a\udfffb": 2, "": 3, "\ud83d\ude00": 4}')
    assert types_of(row) == {RECORD: "large_binary", "": "int64", "\U0001f600": "int64"}
    assert PREPARED in RESERVED
    assert types_of(dict.fromkeys([*RESERVED, "kept"], 1)) == {RECORD: "large_binary", "kept": "int64"}


def test_a_key_has_one_type_or_isnt_carried() -> None:
    cases: list[tuple[list[Any], str | None]] = [
        ([1, None], "int64"),
        ([1, 2.5], "double"),
        ([float("nan"), 1], "double"),
        ([2**70], "int64"),
        ([True, None, False], "bool"),
        (["a", None], "string"),
        ([True, 1], None),
        ([1, "a"], None),
        ([1, [1]], None),
        ([None, None], None),
    ]
    for values, kind in cases:
        assert types_of(*({"key": value} for value in values)).get("key") == kind


def test_a_value_that_doesnt_fit_is_null() -> None:
    cases: list[tuple[list[Any], pa.DataType, list[Any]]] = [
        ([1, 2**63 - 1, 2**70, "1", 1.0, True, None], pa.int64(), [1, 2**63 - 1, None, None, None, None, None]),
        (["a", "\ud800", 1, None, "\U0001f600"], pa.string(), ["a", None, None, None, "\U0001f600"]),
        ([0.5, 2, True, "1", 10**400, 2**53 + 1, None], pa.float64(), [0.5, 2.0, None, None, None, None, None]),
        ([float("inf"), float("-inf")], pa.float64(), [float("inf"), float("-inf")]),
        ([True, 1, None, "true"], pa.bool_(), [True, None, None, None]),
        ([], pa.int64(), []),
    ]
    for values, kind, column in cases:
        carried = scalar_column(values, kind)
        assert (carried.type, carried.to_pylist()) == (kind, column)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.lists(st.integers())


@any_speed
@given(st.lists(SCALARS), st.sampled_from([pa.int64(), pa.float64(), pa.string(), pa.bool_()]))
def test_a_column_never_invents_a_value(values: list[Any], kind: pa.DataType) -> None:
    for value, held in zip(values, scalar_column(values, kind).to_pylist(), strict=True):
        assert held is None or held == value or (math.isnan(held) and math.isnan(value))


# --- carried from Parquet ------------------------------------------------------------------------------------------


def test_parquet_columns_are_carried_as_they_are(tmp_path: Path) -> None:
    table = pa.table({"messages": pa.array([[{"role": "user"}]]), "n": pa.array([1], pa.int8())}, metadata={"made": "by"})
    schema = carried_columns(parquet_files(tmp_path, table), [])
    assert schema == table.schema
    assert schema.metadata is None


def test_files_with_different_columns_are_unified(tmp_path: Path) -> None:
    files = parquet_files(tmp_path, {"a": [1]}, {"b": ["x"], "a": pa.nulls(1)}, {"c": [True]})
    assert carried_columns(files, []) == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    required = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    files = parquet_files(tmp_path, pa.table({"a": [1]}, required), {"b": [1]})
    assert carried_columns(files, []).field("a").nullable, "a column that a file requires may be missing in another"


def test_columns_that_are_known_arent_read_again(tmp_path: Path) -> None:
    held, opened, new = parquet_files(tmp_path, {"a": [1]}, {"a": [1], "b": ["x"]}, {"c": [True]})
    schemas = {opened.path: pq.read_schema(opened.path), new.path: pq.read_schema(new.path)}
    for file in (held, opened, new):
        Path(file.path).unlink()
    schema = carried_columns([held, opened, new], [], schemas, pa.schema([("a", pa.int64()), ("old", pa.int8())]))
    assert schema == pa.schema([("a", pa.int64()), ("old", pa.int8()), ("b", pa.string()), ("c", pa.bool_())])
    assert carried_columns([opened, new], [], schemas, pa.schema([("other", pa.int8())])).names == ["a", "b", "c"]


def test_a_conflict_in_a_column_that_rows_are_read_from_names_the_files_that_have_it(tmp_path: Path) -> None:
    files = parquet_files(tmp_path, {"a": [1]}, {"a": [1], "b": [1]}, {"a": [1], "b": ["x"]})
    with pytest.raises(
        SourceError, match=r"the column 'b', from which rows are read, is int64 in .*; give it one type"
    ) as caught:
        carried_columns(files, [], read={"b", "c"})
    assert re.findall(r"\d\.parquet", str(caught.value)) == ["1.parquet", "2.parquet"]
    assert carried_columns(files, [], read={"a"}).field("b").type == pa.string()


_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC).replace(tzinfo=None)
_LIST = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_LARGE = pa.large_list(pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", pa.large_string())]))


def test_columns_of_two_types_are_carried_as_the_wider_or_as_text(tmp_path: Path) -> None:
    cases: list[tuple[pa.DataType, pa.DataType, pa.DataType, bool]] = [
        (pa.string(), pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string(), True),
        (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()), pa.string(), True),
        (pa.int8(), pa.int64(), pa.int64(), True),
        (_LIST, _LARGE, _LIST, True),
        (pa.int64(), pa.float64(), pa.float64(), False),
        (pa.bool_(), pa.int64(), pa.string(), False),
        (_LIST, pa.string(), pa.string(), False),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())]), pa.string(), False),
        (pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ns"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), False),
        (pa.decimal128(10, 2), pa.float64(), pa.float64(), False),
    ]
    for kind, other, carried, as_read in cases:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        for first, second in ((kind, other), (other, kind)):
            files = parquet_files(folder, {"x": pa.nulls(1, first)}, {"x": pa.nulls(1, second)})
            schema = carried_columns(files, [])
            assert schema.field("x").type == carried
            text = types_text([pq.read_schema(file.path) for file in files], schema)
            assert (text == "") is as_read
            if as_read:
                carried_columns(files, [], read=["x"])
            else:
                assert f": as {carried})" in text
                with pytest.raises(SourceError, match="from which rows are read"):
                    carried_columns(files, [], read=["x"])


def test_a_value_of_another_type_is_text_or_what_it_was_or_null() -> None:
    cases: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
        (
            pa.array([{"b": "x", "a": 1}]),
            pa.struct([("a", pa.int64()), ("c", pa.string()), ("b", pa.string())]),
            [{"a": 1, "c": None, "b": "x"}],
        ),
        (pa.array([1, 2**53 + 1, None, -4]), pa.float64(), [1.0, None, None, -4.0]),
        (pa.array([1, None]), pa.string(), ["1", None]),
        (pa.array([{"a": [1, 2]}, None]), pa.string(), ['{"a": [1, 2]}', None]),
        (pa.array([2**58, 1], pa.timestamp("us")), pa.timestamp("ns"), [None, _EPOCH + datetime.timedelta(microseconds=1)]),
        (pa.array([b"\xff", b"a"]), pa.string(), ["b'\\xff'", "b'a'"]),
        (
            pa.array([[{"r": "x"}]], pa.list_(pa.struct([("r", pa.dictionary(pa.int8(), pa.string()))]))),
            pa.list_(pa.struct([("r", pa.string())])),
            [[{"r": "x"}]],
        ),
    ]
    for column, kind, values in cases:
        converted = carried_as(pa.chunked_array([column]), kind)
        assert (converted.type, converted.to_pylist()) == (kind, values)


_A, _AB = pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.string())])


def test_a_file_of_other_types_isnt_appended(tmp_path: Path) -> None:
    cases: list[tuple[pa.DataType, pa.DataType]] = [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.null(), pa.string()),
        (pa.list_(_A), pa.list_(_AB)),
        (pa.list_(pa.null()), pa.list_(pa.int64())),
    ]
    for there, appended in cases:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        files = parquet_files(folder, {"x": pa.nulls(1, there)}, pa.table({"x": pa.nulls(1, appended)}))
        with pytest.raises(SourceError) as caught:
            check_carried(pa.schema([("x", there)]), files)
        message = str(caught.value).replace("<element:", "<item:")  # as Parquet calls it
        assert (
            f"1.parquet has the column 'x' as {appended}, and the run that it is appended to has it as {there};" in message
        )


def test_nulls_narrower_types_and_other_ways_of_storing_are_appended(tmp_path: Path) -> None:
    cases: list[tuple[pa.DataType, pa.DataType]] = [
        (pa.int64(), pa.null()),
        (pa.list_(_AB), pa.list_(_A)),
        (pa.string(), pa.large_string()),
        (pa.large_string(), pa.string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string())),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.int64(), pa.int8()),
        (pa.float64(), pa.int64()),
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
    ]
    for there, appended in cases:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        files = parquet_files(folder, pa.table({"x": pa.nulls(1, appended), "more": [1]}))
        check_carried(pa.schema([("x", there), ("y", pa.string())]), files)


def test_parquet_and_json_dont_mix(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"mixes Parquet with JSON files, such as /.*/0\.parquet and /x; leave out"):
        carried_columns([*parquet_files(tmp_path, {"a": [1]}), JSON_FILE], [])


def test_a_name_that_a_file_has_twice_or_that_is_needed_meanwhile_is_refused(tmp_path: Path) -> None:
    files = parquet_files(tmp_path, pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(SourceError, match=r"0\.parquet has more than one column 'a'"):
        carried_columns(files, [])
    for name in RESERVED:
        with pytest.raises(SourceError, match=rf"1\.parquet has a column '{name}'"):
            carried_columns(parquet_files(tmp_path, {"a": [1]}, {name: [b"x"]}), [])


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.string()])
def test_a_parquet_column_called_record_is_a_column_like_any_other(tmp_path: Path, kind: pa.DataType) -> None:
    files = parquet_files(tmp_path, pa.table({"reward": [1.0], RECORD: pa.array([b"{}"], kind)}))
    columns = Columns(carried_columns(files, []), ("score",), "second_")
    assert columns.is_json is False
    assert columns.carried.names == ["reward", RECORD]
    columns.check([RECORD, "reward"])


# --- names ---------------------------------------------------------------------------------------------------------


def test_an_input_column_of_our_name_is_refused_unless_ours_have_a_prefix() -> None:
    columns = json_columns(prefix="judge_")
    for name in ("row", "scores", "status", "Reward"):
        with pytest.raises(SourceError, match=rf"'{name}'.*--set prefix=judge_ for judge_{name}"):
            json_columns().check(["id", name])
        columns.check(["id", name])
    assert columns.collision(["reward", "JUDGE_reward"]) == "JUDGE_reward"
    with pytest.raises(SourceError, match="for judge_reward"):
        columns.check(["judge_reward"])
    assert json_columns().collision(["rewards", "a.reward", "", "\ud800", "_row"]) is None


@pytest.mark.parametrize("prefix", ["", "judge_"])
def test_the_record_has_its_name_under_every_prefix(prefix: str) -> None:
    with pytest.raises(SourceError, match=r"'record'.*rename it"):
        json_columns(prefix=prefix).check([RECORD])


def test_a_carried_column_that_no_sampled_row_has_is_checked_too(tmp_path: Path) -> None:
    columns = Columns(carried_columns(parquet_files(tmp_path, {"a": [1]}, {"status": ["x"]}), []), ("score",), "")
    with pytest.raises(SourceError, match="'status'"):
        columns.check(["a"])


# --- a part --------------------------------------------------------------------------------------------------------


def part_of(columns: Columns, carried: Mapping[str, Sequence[Any]], *rows: tuple[str, str, str | None, Score]) -> pa.Table:
    return columns.table(pa.table(carried, schema=columns.carried), rows)


def test_a_part_holds_what_is_carried_and_what_came_of_it() -> None:
    columns = Columns(carried_columns([JSON_FILE], [{"id": 1}]), ("help", "truth"), "j_")
    good = replace(Score.scored(Reading(1.5, {"help": 1.0, "truth": -2.0}), prompt_tokens=7), truncated=True)
    table = part_of(
        columns,
        {RECORD: [b"{}", b"\xff"], "id": [5, None]},
        ("f:0", "final", "abc", good),
        ("f:3", "final", None, Score.rejected(Reason.NOT_UTF8)),
    )
    assert table.schema == columns.schema
    assert table.to_pylist() == [
        {
            "record": b"{}", "id": 5, "j_row": "f:0", "j_response_name": "final", "j_prompt_hash": "abc", "j_reward": 1.5,
            "j_scores": {"help": 1.0, "truth": -2.0}, "j_status": "scored", "j_reason": None, "j_prompt_tokens": 7,
            "j_truncated": True,
        },
        {
            "record": b"\xff", "id": None, "j_row": "f:3", "j_response_name": "final", "j_prompt_hash": None,
            "j_reward": None, "j_scores": None, "j_status": "rejected", "j_reason": "not_utf8", "j_prompt_tokens": None,
            "j_truncated": False,
        },
    ]  # fmt: skip


def test_the_columns_of_a_part_are_the_same_without_a_row_and_survive_parquet(tmp_path: Path) -> None:
    columns = json_columns({"id": 1})
    empty = part_of(columns, {RECORD: [], "id": []})
    assert (empty.num_rows, empty.schema) == (0, columns.schema)
    score = Score.failed(Reason.NOT_FINITE, prompt_tokens=3)
    table = part_of(columns, {RECORD: [b"{}"], "id": [1]}, ("f:0", "final", "h", score))
    pq.write_table(table, tmp_path / "part.parquet")
    assert pq.read_table(tmp_path / "part.parquet").equals(table)
