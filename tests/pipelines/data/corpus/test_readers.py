"""Rows and their ranges: nothing of a file is lost, read twice or changed, however it is cut up and wherever it breaks."""

import errno
import gzip
import io
import itertools
import json
import os
import re
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.errors import DamagedSource, RunStopped, SourceError
from pipelines.data import storage
from pipelines.data.corpus import corpus_files, readers
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.data.corpus.readers import BLANK, END, FILE, JSON_SCHEMA, NOTE, RECORD, START, RawRow, raw_rows, read
from pipelines.data.corpus.units import Unit, cut
from pipelines.folders.run_folder.coverage import gaps
from pipelines.run.prepare.resolve_run import block_bytes
from tests.support.corpora import damaged_parquet, find
from tests.support.examples import examples
from tests.support.object_store import BUCKET

any_speed = examples(60)
PLENTY = 2**20
TOO_LARGE = "record_too_large"

_ODD_LINE = st.sampled_from([b"", b" ", b"\t\r", b"{}", b'{"a": 1}\r', b"\xef\xbb\xbf{}", b"\xff", b"x" * 30])
_LINES = st.lists(_ODD_LINE | st.binary(max_size=9), max_size=12).map(b"\n".join)
_TEXTS = st.tuples(_LINES, st.sampled_from([b"", b"\n", b"\n\n"])).map(b"".join)
JSONL = _TEXTS.filter(lambda data: b"\0" not in data[:8] and not data.strip().startswith((b"[", b"<")))
"""A file that begins as UTF-16, an array or a page is refused, and no line of it read."""
LIMIT = st.integers(1, 40) | st.just(PLENTY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus")


def file_of(path: Path, data: bytes) -> InputFile:
    path.write_bytes(data)
    return find([str(path)])[0]


@pytest.fixture
def broken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed files aren't looked into when they are listed, as if they were cut off beyond what is looked at."""
    monkeypatch.setattr(corpus_files, "_unpack_beginning", lambda path, size, compression: b"")


def never(file: InputFile, extent: int) -> None:
    pytest.fail(f"{file.name} was said to end at {extent}")


def ranges(rows: Iterable[RawRow]) -> list[Range]:
    return [Range(row.start, row.end) for row in rows]


def tiles(pieces: Sequence[Range], extent: int) -> bool:
    return not gaps(sorted(pieces), extent) and sum(end - start for start, end in pieces) == extent


def records(rows: Iterable[RawRow]) -> list[tuple[int, str | None, bytes | None]]:
    """The rows that are there, where they start and what they hold."""
    return [(row.start, row.note, row.record) for row in rows if row.note != BLANK]


def lines_of(data: bytes, limit: int) -> list[tuple[int, str | None, bytes | None]]:
    """The same, by the simplest means."""
    result: list[tuple[int, str | None, bytes | None]] = []
    for match in re.finditer(rb"[^\n]*\n|[^\n]+", data):
        line = match[0]
        if len(line.removesuffix(b"\n")) > limit:
            result.append((match.start(), TOO_LARGE, None))
        elif line.strip():
            result.append((match.start(), None, line.rstrip(b"\r\n")))
    return result


def in_pieces(compress: Callable[[bytes], bytes], data: bytes, cuts: Sequence[int]) -> bytes:
    """Compressed as several members, or frames, one after the other."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return b"".join(compress(data[start:end]) for start, end in itertools.pairwise(edges))


def with_peak_memory(work: Callable[[], list[RawRow]]) -> tuple[list[RawRow], int]:
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def zstd(data: bytes) -> bytes:
    compressed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return compressed


COMPRESSED = st.sampled_from([("x.jsonl.gz", gzip.compress), ("x.jsonl.zst", zstd)])


# --- lines ---------------------------------------------------------------------------------------------------------


@any_speed
@given(JSONL, LIMIT, st.integers(1, 40))
def test_lines_are_the_same_however_a_file_is_cut(folder: Path, data: bytes, limit: int, unit_bytes: int) -> None:
    file = file_of(folder / "x.jsonl", data)
    units = cut(file, [Range(0, len(data))], (), unit_bytes)
    rows = [row for unit in units for row in raw_rows(unit, limit)]
    assert records(rows) == lines_of(data, limit)
    assert tiles(ranges(rows), len(data))


@any_speed
@given(JSONL, LIMIT, st.integers(1, 40), st.data())
def test_what_is_done_is_left_out_and_nothing_else(
    folder: Path, data: bytes, limit: int, unit_bytes: int, choice: st.DataObject
) -> None:
    file = file_of(folder / "x.jsonl", data)
    whole = [row for unit in cut(file, [Range(0, len(data))], (), unit_bytes) for row in raw_rows(unit, limit)]
    done = [row for row in whole if choice.draw(st.booleans())]
    open_ranges = gaps(ranges(done), len(data))
    other_size = choice.draw(st.integers(1, 40))
    rows = [row for unit in cut(file, open_ranges, ranges(done), other_size) for row in raw_rows(unit, limit)]
    assert tiles(ranges(done) + ranges(rows), len(data))
    assert sorted(records(done) + records(rows)) == lines_of(data, limit)


@any_speed
@given(JSONL, LIMIT, COMPRESSED, st.lists(st.integers(0, 60), max_size=4))
def test_compressed_lines_are_the_same_lines(
    folder: Path, data: bytes, limit: int, form: tuple[str, Callable[[bytes], bytes]], cuts: list[int]
) -> None:
    name, compress = form
    file = file_of(folder / name, in_pieces(compress, data, cuts))
    rows = list(raw_rows(Unit(file, None), limit))
    assert records(rows) == lines_of(data, limit)
    assert tiles(ranges(rows), len(data))


def test_blank_lines_belong_to_the_row_before_or_to_none(tmp_path: Path) -> None:
    file = file_of(tmp_path / "x.jsonl", b"\n \n{}\n\r\n\n[]\n")
    rows = list(raw_rows(Unit(file, None), PLENTY))
    assert rows == [RawRow(0, 3, BLANK, None), RawRow(3, 9, None, b"{}"), RawRow(9, 12, None, b"[]")]
    for data in (b"\n", b"\n \r\n\t"):
        file = file_of(tmp_path / "x.jsonl", data)
        assert list(raw_rows(Unit(file, None), PLENTY)) == [RawRow(0, len(data), BLANK, None)]


def test_a_row_starts_where_its_line_does_wherever_its_unit_begins(tmp_path: Path) -> None:
    data = b"{}\n" + b"\n" * 20 + b"[]\n"
    file = file_of(tmp_path / "x.jsonl", data)
    starts = {
        tuple(start for unit in cut(file, [Range(0, len(data))], (), size) for start, *_ in records(raw_rows(unit, PLENTY)))
        for size in range(1, len(data) + 1)
    }
    assert starts == {(0, 23)}


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_the_limit_is_read_and_a_longer_one_isnt(tmp_path: Path, end: bytes) -> None:
    file = file_of(tmp_path / "x.jsonl", b"x" * 10 + b"\n" + b"y" * 11 + end)
    assert records(raw_rows(Unit(file, None), 10)) == [(0, None, b"x" * 10), (11, TOO_LARGE, None)]


def test_a_huge_line_is_passed_over_without_holding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_BLOCK_BYTES", 2**16)
    file = file_of(tmp_path / "x.jsonl", b"{}\n" + b"x" * (4 * 2**20) + b"\n{}")
    rows, peak = with_peak_memory(lambda: list(raw_rows(Unit(file, None), 1000)))
    assert [row.note for row in rows] == [None, TOO_LARGE, None]
    assert peak < 2**20


def test_a_limited_file_is_read_to_there_and_no_further(tmp_path: Path) -> None:
    lines = b"{}\n" * 10
    for name, data in (("x.jsonl", lines), ("x.jsonl.gz", gzip.compress(lines)), ("x.json", b"[{}" + b",{}" * 9 + b"]")):
        file = replace(file_of(tmp_path / name, data), extent=4 if name == "x.json" else 12)
        units = cut(file, [Range(0, file.extent or 0)], (), 5)
        assert len([row for unit in units for table in read(unit, PLENTY, never) for row in table.to_pylist()]) == 4


# --- files that break off ------------------------------------------------------------------------------------------


def keep(kept_records: list[bytes | None], rows: Iterable[RawRow]) -> None:
    for row in rows:
        kept_records.append(row.record)


@pytest.mark.usefixtures("broken_later")
@pytest.mark.parametrize(("name", "compress"), [("x.jsonl.gz", gzip.compress), ("x.jsonl.zst", zstd)])
@pytest.mark.parametrize("missing", [1, 5, 2000])
def test_a_truncated_file_gives_the_rows_before_and_says_so(
    tmp_path: Path, name: str, compress: Callable[[bytes], bytes], missing: int
) -> None:
    rows = [json.dumps({"number": number, "half": number / 7}).encode() for number in range(20_000)]
    file = file_of(tmp_path / name, compress(b"\n".join(rows))[:-missing])
    datas: list[bytes | None] = []
    with pytest.raises(SourceError, match=re.escape(file.path)) as refusal:
        keep(datas, raw_rows(Unit(file, None), PLENTY))
    assert 1000 < len(datas) < len(rows)
    read_bytes = sum(len(row or b"") + 1 for row in datas)
    place = f"after byte {read_bytes:,} of its decompressed content (it has {file.size:,} bytes on disk)"
    assert place in str(refusal.value)
    assert datas == rows[: len(datas)]


@pytest.mark.usefixtures("broken_later")
@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
def test_the_end_of_a_truncated_file_is_never_seen(tmp_path: Path, name: str) -> None:
    compress = gzip.compress if name.endswith("gz") else zstd
    file = file_of(tmp_path / name, compress(b"{}\n" * 50_000)[:-3])
    with pytest.raises(SourceError):
        list(read(Unit(file, None), PLENTY, never))


PARQUET_ROWS = [{"text": f"row {number} of {number * 7919}"} for number in range(20)]


# The second lies in the header of the page, of which Arrow's message has two lines.
@pytest.mark.parametrize("damage", [slice(60, 90), slice(0, 20)])
def test_a_damaged_page_of_parquet_is_told_with_the_file_in_one_line(tmp_path: Path, damage: slice) -> None:
    file = damaged_parquet(tmp_path / "x.parquet", PARQUET_ROWS, damage)
    with pytest.raises(DamagedSource, match=rf"^{file.path} can't be read to its end: .*: fetch it again.* leave it out.*$"):
        list(read(Unit(file, Range(0, 20)), PLENTY, never))
    assert sum(table.num_rows for table in read(Unit(file, Range(10, 20)), PLENTY, never)) == 10


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl.gz"])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [(OSError(errno.EIO, "no answer"), SourceError), (RunStopped("no answer"), RunStopped)],
    ids=["disk", "store"],
)
def test_what_a_storage_answers_isnt_taken_for_damage(
    tmp_path: Path, name: str, answer: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "x.parquet":
        pq.write_table(pa.Table.from_pylist(PARQUET_ROWS), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(gzip.compress(b"{}\n" * 20))
    (file,) = find([str(tmp_path / name)])

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if size == readers._SEEN_BYTES:
                return b""
            raise answer

    for module in (readers, storage):
        monkeypatch.setattr(module, "open_read", lambda path, size, *_: Failing(bytes(size)))
    with pytest.raises(expected, match="no answer") as refusal:
        list(read(Unit(file, Range(0, 20)), PLENTY, never))
    assert not isinstance(refusal.value, DamagedSource)


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.jsonl.zst"])
def test_a_pointer_in_a_store_that_wasnt_opened_before_is_refused(s3: Any, name: str) -> None:
    s3.pipe_file(f"{BUCKET}/in/{name}", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
    (file,) = find([f"{BUCKET}/in"])
    with pytest.raises(SourceError, match=rf"{name} is a Git LFS pointer and not the file itself: `git lfs pull`"):
        list(raw_rows(Unit(file, None), PLENTY))


def test_a_file_that_has_gone_is_refused(tmp_path: Path) -> None:
    file = file_of(tmp_path / "x.jsonl", b"{}")
    (tmp_path / "x.jsonl").unlink()
    with pytest.raises(SourceError, match=re.escape(file.path)):
        list(raw_rows(Unit(file, None), PLENTY))


# --- tables --------------------------------------------------------------------------------------------------------


def rows_of(tables: Iterable[pa.Table]) -> list[RawRow]:
    return [RawRow(*(row[name] for name in (START, END, NOTE, RECORD))) for table in tables for row in table.to_pylist()]


def as_file(folder: Path, kind: FileKind, data: bytes) -> InputFile:
    """Lines as a file of another kind, a row each."""
    if kind is FileKind.ARRAY:
        elements = [record for _, _, record in lines_of(data, PLENTY) if record is not None]
        return file_of(folder / "x.json", b"[" + b",".join(b'"%s"' % element.hex().encode() for element in elements) + b"]")
    if kind is not FileKind.JSONL:
        data = gzip.compress(data) if kind is FileKind.JSONL_GZIP else zstd(data)
    return file_of(folder / f"x.{kind}", data)


JSON_KINDS = st.sampled_from([kind for kind in FileKind if kind is not FileKind.PARQUET])


@any_speed
@given(JSONL, JSON_KINDS, st.integers(1, 4), st.data())
def test_tables_hold_the_rows_that_arent_done(
    folder: Path, data: bytes, kind: FileKind, block_rows: int, choice: st.DataObject
) -> None:
    file = replace(as_file(folder, kind, data), index=7)
    whole = list(raw_rows(Unit(file, None), PLENTY))
    done = [row for row in whole if choice.draw(st.booleans())]
    extent = whole[-1].end if whole else 0
    joined = gaps(gaps(ranges(done), extent), extent)  # as parts are: several rows each
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BLOCK_ROWS", block_rows)
        tables = list(read(Unit(file, None, tuple(joined)), PLENTY, lambda *_: None))
    assert rows_of(tables) == [row for row in whole if row not in done]
    assert all(table.schema == JSON_SCHEMA and 0 < table.num_rows <= block_rows for table in tables)
    assert all(set(table.column(FILE).to_pylist()) == {7} for table in tables)


@any_speed
@given(JSONL, JSON_KINDS, st.booleans())
def test_the_end_is_told_where_only_reading_finds_it(folder: Path, data: bytes, kind: FileKind, all_done: bool) -> None:
    file = as_file(folder, kind, data)
    whole = list(raw_rows(Unit(file, None), PLENTY))
    seen: list[tuple[InputFile, int]] = []
    done = tuple(ranges(whole)) if all_done else ()
    list(read(Unit(file, None, done), PLENTY, lambda of, extent: seen.append((of, extent))))
    extent = len(whole) if kind is FileKind.ARRAY else len(data)
    assert seen == ([] if kind is FileKind.JSONL else [(file, extent)])


def test_tables_are_cut_by_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_BLOCK_BYTES", 10)
    file = file_of(tmp_path / "x.jsonl", b"123456\n" * 5)
    assert [table.num_rows for table in read(Unit(file, None), PLENTY, never)] == [2, 2, 1]


# --- arrays --------------------------------------------------------------------------------------------------------

_TEXT = st.text(max_size=6) | st.sampled_from(['"', "\\", '\\"', "],[", "}{", ",", '"]', "é\u2028", "\\" * 5])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
STYLE = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 2, "\t"]),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", " :\t")]),
        "ensure_ascii": st.booleans(),
    }
)
BLOCK = st.integers(8, 40) | st.just(PLENTY)


def elements(path: Path, data: bytes, block: int = PLENTY, limit: int = PLENTY) -> list[RawRow]:
    file = file_of(path, data)
    assert file.kind is FileKind.ARRAY
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BLOCK_BYTES", block)
        return list(raw_rows(Unit(file, None), limit))


def between(data: bytes, rows: Sequence[RawRow]) -> list[bytes]:
    """What is left of a file without its records, in order. Fails if a record isn't in the file as it is."""
    remaining, position = [], 0
    for row in rows:
        assert row.record is not None
        index = data.index(row.record, position)
        remaining.append(data[position:index].strip())
        position = index + len(row.record)
    return [*remaining, data[position:].strip()]


def parses(record: bytes | None) -> bool:
    try:
        json.loads(record or b"")
    except ValueError:
        return False
    return True


@any_speed
@given(st.lists(VALUES, max_size=6), STYLE, st.sampled_from([b"", b"\xef\xbb\xbf", b"\n \t"]), BLOCK)
def test_elements_come_out_as_they_are_written(
    folder: Path, values: list[Any], style: dict[str, Any], before: bytes, block: int
) -> None:
    data = before + json.dumps(values, **style).encode() + b"\n"
    rows = elements(folder / "x.json", data, block)
    assert [json.loads(row.record or b"") for row in rows] == values
    assert ranges(rows) == [Range(index, index + 1) for index in range(len(values))]
    if values:
        first, *commas, last = between(data, rows)
        assert (first.removeprefix(b"\xef\xbb\xbf").strip(), commas, last) == (b"[", [b","] * (len(values) - 1), b"]")


def test_elements_keep_their_own_spacing(tmp_path: Path) -> None:
    rows = elements(tmp_path / "x.json", b'[ {"a" :1 ,\n "b":[ 1,2 ]}\t, 1e5 ,"x, y" ]')
    assert [row.record for row in rows] == [b'{"a" :1 ,\n "b":[ 1,2 ]}', b"1e5", b'"x, y"']


@any_speed
@given(st.lists(VALUES, max_size=4), STYLE, BLOCK, st.data())
def test_an_array_that_is_cut_off_never_looks_whole(
    folder: Path, values: list[Any], style: dict[str, Any], block: int, choice: st.DataObject
) -> None:
    data = json.dumps(values, **style).encode()
    rows = elements(folder / "x.json", data[: choice.draw(st.integers(1, len(data) - 1))], block)
    assert not parses(rows[-1].record)
    good = [json.loads(row.record or b"") for row in rows if parses(row.record)]
    whole = good[:-1] if good != values[: len(good)] else good  # a number that is cut off may be a number still
    assert whole == values[: len(whole)]


_PIECE = st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b" ", b"\n", b"1", b'"a"', b'{"a":1}', b"\xff"])


@any_speed
@given(st.lists(_PIECE, max_size=30).map(b"".join), BLOCK)
@example(b'{"a":1}}', PLENTY)
@example(b'{"a":1}},{"b":2}]', PLENTY)
@example(b"1] [2]", PLENTY)
@example(b"", PLENTY)
def test_a_broken_array_loses_no_byte_but_its_commas_and_brackets(folder: Path, rest: bytes, block: int) -> None:
    rows = elements(folder / "x.json", b"[" + rest, block)
    kept = b"".join(row.record or b"" for row in rows)
    assert kept.translate(None, b"[,] \n") == rest.translate(None, b"[,] \n")
    further = rest.count(b"[") - kept.count(b"[")
    ends = rest.count(b"]") - kept.count(b"]")
    assert ends == 1 + further or (ends == further and rows[-1].record == b"")


def test_what_becomes_of_a_broken_array(tmp_path: Path) -> None:
    blocks: list[int] = [8, PLENTY]
    cases_2: list[tuple[bytes, list[bytes]]] = [
        (b"[]", []),
        (b"[", [b""]),
        (b"[1,", [b"1", b""]),
        (b"[1", [b"1", b""]),
        (b"[1,]", [b"1"]),
        (b"[1,,2]", [b"1", b"", b"2"]),
        (b'[{"a":1}} ,2]', [b'{"a":1}}', b"2"]),
        (b'[{"a":], {"b":1}]', [b'{"a":]', b'{"b":1}']),
        (b'[{"a":[1, {"b":1}]', [b'{"a":[1, {"b":1}]', b""]),
        (b'[{"a":"x}, {"b":"y"}]', [b'{"a":"x}, {"b":"y"}]', b""]),
        (b"[1] garbage, [2]", [b"1", b"garbage, [2]"]),
        (b'[1]{"a":1', [b"1", b'{"a":1']),
        (b"[1][2", [b"1", b"2", b""]),
    ]
    for data, records in cases_2:
        for block in blocks:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            assert [row.record for row in elements(folder / "x.json", data, block)] == records


_OBJECT = st.dictionaries(_TEXT, VALUES, max_size=3)


@any_speed
@given(
    st.lists(_OBJECT | st.lists(VALUES, max_size=4), max_size=5),
    STYLE,
    st.sampled_from(["", "\n", ",\n", "\r\n \ufeff"]),
    BLOCK,
)
def test_arrays_and_objects_after_one_another_are_read_to_the_end(
    folder: Path, values: list[Any], style: dict[str, Any], between: str, block: int
) -> None:
    data = between.join(json.dumps(value, **style) for value in [[], *values])
    rows = elements(folder / "x.json", data.encode(), block)
    expected = [row for value in values for row in (value if isinstance(value, list) else [value])]
    assert [json.loads(row.record or b"") for row in rows] == expected
    assert ranges(rows) == [Range(index, index + 1) for index in range(len(expected))]


def test_many_objects_after_one_another_take_linear_time(tmp_path: Path) -> None:
    data = b"[]" + b'{"a": 1}' * 200_000
    started = time.process_time()
    assert len(elements(tmp_path / "x.json", data)) == 200_000
    assert time.process_time() - started < 5.0, "it takes 0.5 s; copying what is left for each of them would take minutes"


@any_speed
@given(st.lists(VALUES, max_size=5), STYLE, st.integers(1, 30), BLOCK)
def test_an_element_over_the_limit_is_marked_and_the_others_stay(
    folder: Path, values: list[Any], style: dict[str, Any], limit: int, block: int
) -> None:
    data = json.dumps(values, **style).encode()
    unlimited = elements(folder / "x.json", data)
    fits = [row if len(row.record or b"") <= limit else row._replace(note=TOO_LARGE, record=None) for row in unlimited]
    assert elements(folder / "x.json", data, block, limit) == fits


def test_an_element_over_the_limit_isnt_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_BLOCK_BYTES", 2**12)
    nested, text = b'{"a": [' + b'"x", ' * 30_000 + b"1]}", b'"' + b'\\"' * 100_000 + b'"'
    file = file_of(tmp_path / "x.json", b"[1," + nested + b"," + text + b",2] " + text)
    rows, peak = with_peak_memory(lambda: list(raw_rows(Unit(file, None), 1000)))
    assert [row.record for row in rows] == [b"1", None, None, b"2", None]
    assert peak < len(nested)


# --- Parquet -------------------------------------------------------------------------------------------------------


@any_speed
@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 30), st.integers(0, 30), st.integers(1, 9))
def test_any_range_of_a_parquet_file_is_read(
    folder: Path, count: int, group_rows: int, start: int, length: int, block_rows: int
) -> None:
    wanted = Range(min(start, count), min(start + length, count))
    pq.write_table(pa.table({"n": pa.array(range(count), pa.int64())}), folder / "x.parquet", row_group_size=group_rows)
    file = replace(find([str(folder / "x.parquet")])[0], index=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BLOCK_ROWS", block_rows)
        units = cut(file, [wanted] if length else [], (), 1)
        rows = [row for unit in units for table in read(unit, PLENTY, never) for row in table.to_pylist()]
        across = [row for table in read(Unit(file, wanted), PLENTY, never) for row in table.to_pylist()]
    assert [row["n"] for row in rows] == list(range(*wanted))
    assert all((row[FILE], row[START], row[END], row[NOTE]) == (3, row["n"], row["n"] + 1, None) for row in rows)
    assert across == rows
    assert len(units) == len({position // group_rows for position in range(*wanted)})


def test_a_parquet_table_has_its_own_columns_and_types(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([[1], None], pa.list_(pa.int8())), "y": pa.array(["a", "b"], pa.large_string())})
    pq.write_table(table, tmp_path / "x.parquet")
    (result,) = read(Unit(find([str(tmp_path)])[0], Range(0, 2)), PLENTY, never)
    assert result.column_names == [FILE, START, END, NOTE, "x", "y"]
    assert result.select(["x", "y"]).equals(table)


def test_views_of_text_and_bytes_are_read_as_text_and_bytes(tmp_path: Path) -> None:
    """As polars writes them. Of views Arrow takes and filters no rows, and each later step does."""
    text = pa.string_view()
    columns = {
        "text": pa.array(["a", None], text),
        "bytes": pa.array([b"a", None], pa.binary_view()),
        "list": pa.array([["a"], None], pa.list_(text)),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    corpus = find_corpus([str(tmp_path)])
    (table,) = read(Unit(corpus.files[0], Range(0, 2)), PLENTY, never)
    plain = table.select(list(columns))
    assert plain.schema == next(iter(corpus.schemas.values()))
    assert "view" not in str(plain.schema)
    assert plain.take([0]).to_pylist() == pa.table(columns).slice(0, 1).to_pylist()


# --- files that change ---------------------------------------------------------------------------------------------


def test_no_row_comes_out_of_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    for name in ("x.jsonl", "x.jsonl.gz", "x.json", "x.parquet"):
        for change in ("changed", "gone", "touched"):
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            path, lines = folder / name, [b'{"a": %d}' % index for index in range(3000)]
            if name == "x.parquet":
                pq.write_table(pa.table({"a": range(3000)}), path)
            else:
                joined = b"[" + b",".join(lines) + b"]" if name == "x.json" else b"\n".join(lines)
                path.write_bytes(gzip.compress(joined) if name.endswith(".gz") else joined)
            (file,) = find([str(path)])
            tables = read(Unit(file, Range(0, file.extent) if file.extent else None), PLENTY, never)
            next(tables)
            if change == "changed":
                path.write_bytes(path.read_bytes()[::-1])
            elif change == "gone":
                path.rename(folder / "elsewhere")
            os.utime(path if path.exists() else folder / "elsewhere", (1, 1))
            with pytest.raises(
                SourceError, match="is missing; put it back" if change == "gone" else "was written to while it was read"
            ):
                next(tables)


def in_format(name: str, texts: Sequence[str]) -> bytes:
    """Rows with a text each, as the content of a file of this name."""
    if name == "x.parquet":
        stream = pa.BufferOutputStream()
        pq.write_table(pa.table({"a": texts}), stream, row_group_size=1000, use_dictionary=False)
        content: bytes = stream.getvalue().to_pybytes()
        return content
    rows = [json.dumps({"a": text}).encode() for text in texts]
    lines = b"[" + b",".join(rows) + b"]" if name == "x.json" else b"\n".join(rows)
    return gzip.compress(lines, 1) if name.endswith(".gz") else lines


def random_texts(count: int) -> list[str]:
    return [os.urandom(2000).hex() for _ in range(count)]


@pytest.fixture(params=["memory://c", BUCKET])
def store(request: pytest.FixtureRequest) -> str:
    """A folder in a store: one that reads on a condition, and one that doesn't."""
    if request.param == BUCKET:
        request.getfixturevalue("s3")
    return str(request.param)


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json", "x.parquet"])
@pytest.mark.parametrize("rows_then", [3000, 500], ids=["other", "shorter"])
def test_no_row_comes_out_of_an_object_that_is_replaced_while_it_is_read(store: str, name: str, rows_then: int) -> None:
    texts, path = random_texts(3000), f"{store}/{name}"
    system = fsspec.filesystem(path.partition("://")[0])
    system.pipe_file(path, in_format(name, texts))
    (file,) = find([path])
    tables = read(Unit(file, Range(0, file.extent) if file.extent else None), PLENTY, never)
    rows = next(tables).to_pylist()
    system.pipe_file(path, in_format(name, random_texts(rows_then)))
    with pytest.raises(SourceError, match=rf"{file.path} was written to while it was read; restore the file"):
        rows.extend(row for table in tables for row in table.to_pylist())
    assert len(rows) < 3000
    assert [row.get("a") or json.loads(row[RECORD])["a"] for row in rows] == texts[: len(rows)]


def test_an_object_is_read_to_its_end_as_it_was_found(store: str) -> None:
    texts, path = random_texts(3000), f"{store}/x.jsonl"
    fsspec.filesystem(path.partition("://")[0]).pipe_file(path, in_format("x.jsonl", texts))
    (file,) = find([path])
    rows = [row for table in read(Unit(file, Range(0, file.size)), PLENTY, never) for row in table.to_pylist()]
    assert [json.loads(row[RECORD])["a"] for row in rows] == texts


def test_a_file_isnt_opened_that_isnt_what_it_was(tmp_path: Path) -> None:
    file = file_of(tmp_path / "x.jsonl", b"{}\n{ }\n")
    (tmp_path / "x.jsonl").write_bytes(b"{ }\n{}\n")
    with pytest.raises(SourceError, match=r"x\.jsonl has changed since its scoring started"):
        next(read(Unit(file, Range(0, 7)), PLENTY, never))


# --- large rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.json", "x.parquet"])
def test_large_rows_come_in_small_tables(tmp_path: Path, name: str) -> None:
    texts = [os.urandom(2**19).hex() for _ in range(24)]
    path = tmp_path / name
    if name == "x.parquet":
        pq.write_table(pa.table({"a": texts}), path, use_dictionary=False)
    else:
        rows = [json.dumps({"a": text}).encode() for text in texts]
        path.write_bytes(b"[" + b",".join(rows) + b"]" if name == "x.json" else gzip.compress(b"\n".join(rows), 1))
    (file,) = find([str(path)])
    unit = Unit(file, Range(0, 24) if name == "x.parquet" else None)
    sizes = [(table.num_rows, table.nbytes) for table in read(unit, 2 * PLENTY, lambda *_: None)]
    assert sum(rows for rows, _ in sizes) == 24
    assert max(size for _, size in sizes) < 6 * 2**20


def test_blocks_are_about_a_part_and_of_large_rows_less() -> None:
    assert [block_bytes(4096, size) for size in (1, 1000, 2**20)] == [64 * 1024, 4096 * 4000, 64 * 2**20]
