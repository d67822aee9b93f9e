"""Which files a corpus is made of, how they are known again, and how they are cut up."""

import contextlib
import errno
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.corpus import corpus_files
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range, check_same, check_unchanged
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.data.corpus.units import Unit, cut
from pipelines.data.storage import FileStatus, fingerprints
from pipelines.data.storage.protocol import Matches
from tests.conftest import REPOSITORY
from tests.support.corpora import find
from tests.support.object_store import BUCKET

any_speed = settings(deadline=None)
LINES = b'{"a": 1}\n{"a": 2}\n'


def corpus(folder: Path, *names: str, data: bytes = LINES) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def packed(name: str, data: bytes) -> bytes:
    """The data, compressed as the name says."""
    codec = {".gz": "gzip", ".zst": "zstd"}.get(Path(name).suffix)
    return pa.compress(data, codec, asbytes=True) if codec else data


def parquet(path: Path, rows: int, group_rows: int = 10) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), path, row_group_size=group_rows)
    return path


def names(files: list[InputFile]) -> list[str]:
    return [file.name for file in files]


# --- finding -------------------------------------------------------------------------------------------------------


def test_a_folder_is_searched_to_its_bottom_and_in_order_without_hidden_files(tmp_path: Path) -> None:
    corpus(tmp_path, "b.jsonl", "a/c.ndjson", "a/b/d.JSONL", "README.md", "e.jsonl.bak")
    corpus(tmp_path, ".b.jsonl", "_c.jsonl", "_delta_log/d.json", ".git/e.jsonl", ".empty/f.txt")
    assert names(find([str(tmp_path)])) == ["a/b/d.JSONL", "a/c.ndjson", "b.jsonl"]
    assert names(find([str(tmp_path / ".git")])) == ["e.jsonl"], "a hidden folder may be named"
    with pytest.raises(SourceError, match=r"holds no corpus file.*\.jsonl\.zst.*\.parquet"):
        find([str(tmp_path / ".empty")])


def test_what_has_no_known_ending_in_a_folder_is_named(tmp_path: Path) -> None:
    corpus(tmp_path, "in/a.jsonl", "in/x/b.json.gz", "in/c.csv", "in/_SUCCESS", "in/.c.crc", "elsewhere/d.jsonl")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    actual_corpus = find_corpus([str(tmp_path / "in")])
    assert names(actual_corpus.files) == ["a.jsonl"]
    assert [path.removeprefix(f"{tmp_path}/in/") for path in actual_corpus.left_out] == ["c.csv", "linked", "x/b.json.gz"]
    assert names(find([str(tmp_path / "in" / "linked")])) == ["d.jsonl"]


def test_a_folder_that_a_glob_matches_and_doesnt_read_is_named(tmp_path: Path) -> None:
    corpus(tmp_path, "a.jsonl", "2024/b.jsonl", "2025/x/c.jsonl", "notes/d.txt", "_log/e.json", ".f/g.jsonl")
    (tmp_path / "linked").symlink_to(tmp_path / "2024")

    def left_out(*inputs: str) -> list[str]:
        corpus = find_corpus([str(tmp_path / text) for text in inputs])
        return [path.removeprefix(f"{tmp_path}/") for path in corpus.left_out]

    assert names(find([str(tmp_path / "*")])) == ["a.jsonl"]
    assert left_out("*") == ["2024", "2025", "linked", "notes"]
    assert left_out("*", "2024") == ["2025", "linked", "notes"], "what another input reads is not left out"
    assert left_out("*", "2025/x/*") == ["2024", "linked", "notes"]
    assert left_out("**/*.jsonl") == []
    corpus(tmp_path, "x/folder.jsonl/a4.jsonl")
    assert left_out("**/*.jsonl") == []


def test_a_file_named_twice_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(tmp_path, "a.jsonl", "b.jsonl")
    monkeypatch.chdir(tmp_path)
    files = find(["b.jsonl", str(tmp_path), "./a.jsonl", "*.jsonl"])
    assert [(file.index, file.name, file.path) for file in files] == [
        (0, "a.jsonl", str(tmp_path / "a.jsonl")),
        (1, "b.jsonl", str(tmp_path / "b.jsonl")),
    ]


def test_a_file_that_two_inputs_reach_is_there_once(tmp_path: Path) -> None:
    corpus(tmp_path, "in/a.jsonl", "in/b.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "c.jsonl").symlink_to(tmp_path / "in" / "a.jsonl")
    assert names(find([str(tmp_path / "in")])) == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert find([str(tmp_path / "in"), str(tmp_path / "link")]) == find([str(tmp_path / "in")])


def test_names_dont_depend_on_where_the_corpus_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("here", "there"):
        corpus(tmp_path / place, "x/a.jsonl", "y/z/a.jsonl")
    monkeypatch.chdir(tmp_path / "there")
    assert names(find([str(tmp_path / "here")])) == names(find(["x", "y/z"])) == ["x/a.jsonl", "y/z/a.jsonl"]


def test_the_ending_tells_the_kind(tmp_path: Path) -> None:
    kinds = {"": FileKind.JSONL, ".gz": FileKind.JSONL_GZIP, ".zst": FileKind.JSONL_ZSTD}
    for name in ("x.jsonl", "x.NDJSON", "x.jsonl.gz", "x.ndjson.gz", "x.jsonl.zst", "x.ndjson.zst", "x.json"):
        kind = kinds[Path(name).suffix if name.count(".") == 2 else ""]
        corpus(tmp_path, name, data=packed(name, LINES))
        (file,) = find([str(tmp_path / name)])
        assert (file.kind, file.size) == (kind, len(packed(name, LINES)))
        assert file.extent == (len(LINES) if kind is FileKind.JSONL else None)


def test_a_json_file_is_an_array_or_holds_lines(tmp_path: Path) -> None:
    cases: list[tuple[bytes, FileKind]] = [
        (b"[]", FileKind.ARRAY),
        (b'\xef\xbb\xbf \r\n\t[{"a": 1}]', FileKind.ARRAY),
        (b"", FileKind.JSONL),
        (b" \n", FileKind.JSONL),
        (b'{"a": [1]}\n', FileKind.JSONL),
        (b'{"a":\n{"a": 2}\n', FileKind.JSONL),
        (b'[{"a": 1}]\n[{"a": 2}]\n', FileKind.ARRAY),
        (b'{"a": 1}\n[{"a": 2}]\n', FileKind.ARRAY),
        (b'{"a": 1}{"a": 2}', FileKind.ARRAY),
        (b'{"a": 1},\n{"a": 2},\n', FileKind.ARRAY),
        (json.dumps({"a": "x" * 100_000}, indent=1).encode() * 2, FileKind.ARRAY),
        (json.dumps({"a": "x" * 100_000}).encode() + b"\n{}", FileKind.JSONL),
    ]
    for data, kind in cases:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        corpus(folder, "x.json", data=data)
        (file,) = find([str(folder)])
        assert (file.kind, file.extent) == (kind, None if kind is FileKind.ARRAY else len(data))


ROW = {"prompt": "a", "response": "b"}
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def test_a_json_file_that_is_one_document_is_told_as_what_it_is(tmp_path: Path) -> None:
    for document, message in (
        ({"version": "1", "data": [ROW, ROW]}, r"a list of 2 objects under 'data': `jq -c '\.\[\"data\"\]\[\]'"),
        ({"x": ROW, "y": ROW}, r"2 objects by key, 'x', 'y': `jq -c '\.\[\]'"),
        (
            {"x": {"0": "q", "1": "r"}, "y": {"0": "a", "1": "b"}},
            r"2 columns by the number of the row, .*'y': `jq -c",
        ),
    ):
        for indent in (None, 2):
            corpus(tmp_path, "x.json", data=json.dumps(document, indent=indent).encode())
            with pytest.raises(SourceError, match=rf"x\.json is one object with {message}.*or leave it out"):
                find([str(tmp_path)])


def test_a_row_in_a_file_by_itself_is_one_if_it_is_in_a_line(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        ROW,
        {"messages": TURNS},
        {"prompt": TURNS[0], "chosen": TURNS[1]},
        {"a": "b", "steps": [{}]},
    ]
    for number, row in enumerate(rows):
        corpus(tmp_path, f"{number}.json", data=json.dumps(row).encode())
    assert [file.kind for file in find([str(tmp_path)])] == [FileKind.JSONL] * len(rows)
    corpus(tmp_path, "x.json", data=json.dumps(ROW, indent=1).encode())
    text = r"x\.json is one object over several lines, with 'prompt', 'response': if it is a row, `jq -c \. .* writes it"
    with pytest.raises(SourceError, match=text):
        find([str(tmp_path / "x.json")])


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
NO_ROWS = [
    (POINTER, "is a Git LFS pointer and not the file itself: `git lfs pull`"),
    (b"<!DOCTYPE html>\n<html>404</html>", "is a page of HTML or XML, .* begins with '<!DOCTYPE html>"),
    (LINES.decode().encode("utf-16"), r"is UTF-16 text: `iconv -f UTF-16 -t UTF-8`"),
    (LINES.decode().encode("utf-16-le"), r"is UTF-16 text: `iconv -f UTF-16LE -t UTF-8`"),
    (LINES.decode().encode("utf-32"), r"is UTF-32 text"),
    (b"PK\x03\x04", "is a zip archive"),
]


def test_what_no_rows_can_be_read_of_is_told_as_what_it_is(tmp_path: Path) -> None:
    for data, message in NO_ROWS:
        for name in ("x.json", "x.jsonl", "x.jsonl.gz", "x.jsonl.zst"):
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            corpus(folder, name, data=data if data == POINTER else packed(name, data))
            with pytest.raises(SourceError, match=f"(?s){re.escape(name)} {message}.*or leave it out"):
                find([str(folder)])


def test_arrays_in_a_file_of_lines_are_refused_before_a_row_is_lost(tmp_path: Path) -> None:
    for name in ("x.jsonl", "x.ndjson", "x.jsonl.gz", "x.jsonl.zst"):
        for data in (b"[\n]", b'[{"a": 1}]\n[{"a": 2}]', b'{"a": 1}\n[{"a": 2}]', b'{\n"a": 1}{\n"a": 2}'):
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            corpus(folder, name, data=packed(name, data))
            with pytest.raises(
                SourceError, match=f"{name} holds JSON arrays, or objects over several lines, .* name it .json"
            ):
                find([str(folder)])


@pytest.mark.parametrize("data", [b"what\n", b'{"a": \n', b'"x"\n', b'\xff\xfe{"a": 1}\n', b"// x\n" + LINES])
def test_lines_are_judged_one_by_one_where_the_file_is_nothing_else(tmp_path: Path, data: bytes) -> None:
    corpus(tmp_path, "x.jsonl", data=data)
    assert names(find([str(tmp_path)])) == ["x.jsonl"]


INFOS = json.dumps({"default": {"features": {"prompt": {"dtype": "string"}}, "splits": {}}}).encode()
STATE = json.dumps({"_data_files": [{"filename": "data.arrow"}], "_split": "train"}, indent=2).encode()


@pytest.mark.parametrize("rows", ["a/train.jsonl", "a/train.jsonl.gz", "a/train.json", "train.parquet"])
def test_documents_beside_rows_are_left_out_of_a_folder_and_named(tmp_path: Path, rows: str) -> None:
    path = tmp_path / rows
    path.parent.mkdir(exist_ok=True)
    if rows.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    else:
        path.write_bytes(gzip.compress(json.dumps(ROW).encode()) if rows.endswith("gz") else json.dumps([ROW]).encode())
        if rows.endswith("jsonl"):
            path.write_bytes(json.dumps(ROW).encode())
    corpus(tmp_path, "dataset_infos.json", data=INFOS)
    corpus(tmp_path, "state.json", data=STATE)
    corpus(tmp_path, "meta.json", data=b'{"license": "mit", "n": 1}')
    actual_corpus = find_corpus([str(tmp_path)], first_index=3)
    assert [(file.index, file.name) for file in actual_corpus.files] == [(3, path.name)]
    assert [text.removeprefix(f"{tmp_path}/") for text in actual_corpus.left_out] == [
        "dataset_infos.json (one object with 1 objects by key, 'default')",
        "meta.json (one object, with 'license', 'n')",
        "state.json (one object over several lines, with '_data_files', '_split')",
    ]
    for name in ("dataset_infos.json", "state.json"):
        with pytest.raises(SourceError, match=f"{name} is one object .*; or leave it out"):
            find([str(tmp_path / name)])


@pytest.mark.parametrize("data", [b"ARROW1", None])
def test_a_dataset_that_was_saved_to_disk_is_told_as_such(tmp_path: Path, data: bytes | None) -> None:
    corpus(tmp_path, "train/data-00000-of-00001.arrow", data=b"ARROW1")
    if data is not None:
        corpus(tmp_path, "dataset_dict.json", data=b'{"splits": ["train"]}')
        corpus(tmp_path, "train/state.json", data=STATE)
    text = (
        r"data-00000-of-00001\.arrow has a file name .* `datasets\.load_from_disk"
        if data
        else r"it holds .*\.arrow\. Assay reads"
    )
    with pytest.raises(SourceError, match=text):
        find([str(tmp_path)])


def test_rows_of_csv_are_told_the_way(tmp_path: Path) -> None:
    corpus(tmp_path, "rows.csv", data=b'prompt,response\n"2 + 2?","4,\nI think"\n')
    with pytest.raises(SourceError, match=r"rows\.csv has a file name .* reads.*`(duckdb\.sql\(.*\))`") as error:
        find([str(tmp_path / "rows.csv")])
    way = re.search(r'"(copy .*)"', str(error.value))
    assert way is not None
    with contextlib.chdir(tmp_path):
        duckdb.sql(way[1])
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [{"prompt": "2 + 2?", "response": "4,\nI think"}]


@pytest.mark.parametrize("document", [{"data": [ROW, ROW]}, {"x": ROW, "y": ROW}])
def test_a_document_that_holds_such_rows_as_its_neighbours_isnt_left_out(tmp_path: Path, document: object) -> None:
    corpus(tmp_path, "a.jsonl", data=json.dumps(ROW).encode())
    corpus(tmp_path, "b.json", data=json.dumps(document).encode())
    with pytest.raises(SourceError, match=r"b\.json is one object with .*2 objects"):
        find([str(tmp_path)])
    corpus(tmp_path, "b.json", data=json.dumps(ROW).encode())
    assert names(find([str(tmp_path)])) == ["a.jsonl", "b.json"]


def test_documents_in_a_store_are_left_out_again_when_its_files_are_known(s3: Any) -> None:
    for name, data in {"a.jsonl": json.dumps(ROW).encode(), "dataset_infos.json": INFOS, "m.json": b'{"n": 1}'}.items():
        s3.pipe_file(f"{BUCKET}/in/{name}", data)
    first = find_corpus([f"{BUCKET}/in"])
    assert (names(first.files), len(first.left_out)) == (["a.jsonl"], 2)
    again = find_corpus([f"{BUCKET}/in"], earlier={file.path: file for file in first.files})
    assert again == first


# --- refusing ------------------------------------------------------------------------------------------------------


def test_all_files_that_cannot_be_read_are_named_at_once(tmp_path: Path) -> None:
    corpus(tmp_path, "a.parquet", data=b"no Parquet")
    corpus(tmp_path, "b.json", data=b'{\n  "a": 1\n}\n')
    corpus(tmp_path, "c.jsonl.gz", data=gzip.compress(LINES)[:-9])
    corpus(tmp_path, "d.jsonl.gz", data=LINES)
    corpus(tmp_path, "e.jsonl.zst", data=pa.compress(LINES, "zstd", asbytes=True)[:-9])
    corpus(tmp_path, "f.jsonl.gz", data=gzip.compress(LINES))
    with pytest.raises(SourceError) as refused:
        find([str(tmp_path)])
    first, *others = str(refused.value).splitlines()
    assert first == "5 input files can't be read:"
    for line, name in zip(others, ("a.parquet", "b.json", "c.jsonl.gz", "d.jsonl.gz", "e.jsonl.zst"), strict=True):
        assert line.startswith(f"  {tmp_path / name} ")
        assert "leave it out" in line
    assert "fetch it again" in others[0]
    assert "`gzip -t`" in others[2]
    assert "is not compressed with gzip: name it .jsonl" in others[3]
    assert "`zstd -t`" in others[4]
    with pytest.raises(SourceError, match=r"a\.parquet isn't a valid Parquet file") as refused:
        find([str(tmp_path / "a.parquet")])
    assert refused.value.__cause__ is not refused.value, "whoever follows the causes would follow them for ever"


def test_a_parquet_file_that_is_cut_off_is_told_so(tmp_path: Path) -> None:
    corpus(tmp_path, "a.parquet", data=parquet(tmp_path / "whole.parquet", 100).read_bytes()[:-9])
    with pytest.raises(SourceError, match=r"a\.parquet isn't a valid Parquet file: .*; fetch it again, or leave it out"):
        find([str(tmp_path / "a.parquet")])


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.ndjson.zst"])
def test_a_compressed_file_of_no_bytes_isnt_one_without_rows(tmp_path: Path, s3: Any, name: str) -> None:
    corpus(tmp_path, name, data=b"")
    s3.pipe_file(f"{BUCKET}/in/{name}", b"")  # whose size a listing gives, so that it needn't be opened
    for folder in (str(tmp_path), f"{BUCKET}/in"):
        with pytest.raises(SourceError, match=rf"{name} is empty, .*: fetch it again, or leave it out"):
            find([folder])
    corpus(tmp_path, name, data=packed(name, b""))
    assert names(find([str(tmp_path)])) == [name]


def test_of_many_files_that_cannot_be_read_twenty_are_named_and_the_others_counted(tmp_path: Path) -> None:
    corpus(tmp_path, *(f"{index:02}.parquet" for index in range(23)))
    with pytest.raises(SourceError) as refused:
        find([str(tmp_path)])
    first, *others, last = str(refused.value).splitlines()
    assert (first, len(others), last) == ("23 input files can't be read:", 20, "  and 3 more")


@pytest.mark.parametrize("missing", ["nothing.jsonl", "*.jsonl", "no/such/folder"])
def test_what_leads_nowhere_is_named(tmp_path: Path, missing: str) -> None:
    corpus(tmp_path, "x/a.jsonl")
    with pytest.raises(SourceError, match=re.escape(str(tmp_path / missing))):
        find([str(tmp_path / "x"), str(tmp_path / missing)])


@pytest.mark.parametrize("name", ["a.csv", "a", "a.json.gz", "a.jsonl.bz2"])
def test_an_unknown_ending_is_refused(tmp_path: Path, name: str) -> None:
    corpus(tmp_path, name)
    with pytest.raises(
        SourceError, match=rf"{re.escape(name)} has a file name extension that Assay doesn't read; it reads \.jsonl"
    ):
        find([str(tmp_path / name)])


def test_names_that_arent_utf8_are_refused_before_a_run_starts(tmp_path: Path) -> None:
    """Linux allows them. Each row is named by its file, and a part can't hold such a name."""
    corpus(tmp_path, "x.jsonl", os.fsdecode(b"caf\xe9.csv"))
    assert [file.name for file in find([str(tmp_path)])] == ["x.jsonl"]
    corpus(tmp_path, *(os.fsdecode(name) for name in (b"caf\xe9.jsonl", b"\xff/x.parquet")))
    with pytest.raises(SourceError) as refused:
        find([str(tmp_path)])
    str(refused.value).encode()  # it can be printed
    assert f"{tmp_path}/caf\\udce9.jsonl' isn't valid UTF-8" in str(refused.value)
    assert f"{tmp_path}/\\udcff/x.parquet' isn't valid UTF-8, as the names of rows must be; rename it" in str(refused.value)


def test_a_file_that_cant_be_read_is_named(tmp_path: Path) -> None:
    memory = Path("/proc/self/mem")  # a file that even root can't read from its start
    if not memory.exists():
        pytest.skip("needs /proc")
    (tmp_path / "x.jsonl").symlink_to(memory)
    with pytest.raises(SourceError, match=re.escape(f"{tmp_path / 'x.jsonl'} can't be read")):
        find([str(tmp_path)])


def test_a_folder_that_cant_be_listed_isnt_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(tmp_path, "a.jsonl", "locked/b.jsonl")
    scandir = os.scandir

    def guarded(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(SourceError, match=rf"can't be read: Permission denied \({tmp_path}/locked\)"):
        find([str(tmp_path)])


# --- knowing again -------------------------------------------------------------------------------------------------

SAMPLE = 65536


def fingerprint(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return find([str(path)])[0].fingerprint


@pytest.mark.parametrize("size", [1, 100, SAMPLE, SAMPLE + 1, 2 * SAMPLE, 3 * SAMPLE])
def test_a_change_at_either_end_changes_the_fingerprint(tmp_path: Path, size: int) -> None:
    path, data = tmp_path / "x.jsonl", bytearray(b"a" * size)
    before = fingerprint(path, bytes(data))
    assert fingerprint(path, bytes(data)) == before
    for index in {0, min(size, SAMPLE) - 1, max(0, size - SAMPLE), size - 1}:
        changed = data.copy()
        changed[index] += 1
        assert fingerprint(path, bytes(changed)) != before


def test_the_middle_of_a_large_file_is_sampled_at_places_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_WHOLE_BYTES", 0)
    data = bytearray(Random(0).randbytes(2**20))  # that begins with no bracket
    before = fingerprint(tmp_path / "x.jsonl", bytes(data))
    data[2**19 : 2**19 + 2**17] = reversed(data[2**19 : 2**19 + 2**17])
    assert fingerprint(tmp_path / "x.jsonl", bytes(data)) != before
    assert fingerprints.is_sampled(before)


def test_a_touched_file_is_the_same_unless_it_is_too_large_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for whole in (2**20, 0):
        monkeypatch.setattr(fingerprints, "_WHOLE_BYTES", whole)
        corpus(tmp_path, "x.jsonl", data=LINES * 10_000)
        (file,) = find([str(tmp_path)])
        check_unchanged([file])
        os.utime(tmp_path / "x.jsonl", (1, 1))
        if whole:
            check_unchanged([file])
        else:
            with pytest.raises(SourceError, match=r"x\.jsonl was written to .* too large to be compared.*touch -d @"):
                check_unchanged([file])


def test_a_file_that_has_changed_or_is_gone_is_named(tmp_path: Path) -> None:
    corpus(tmp_path, "x.jsonl")
    (file,) = find([str(tmp_path)])
    corpus(tmp_path, "x.jsonl", data=LINES[::-1])
    with pytest.raises(
        SourceError,
        match=r"x\.jsonl has changed .*its size is the same, its content isn't.*run the same command again to resume",
    ):
        check_same(file)
    corpus(tmp_path, "x.jsonl", data=LINES * 2)
    with pytest.raises(SourceError, match=r"x\.jsonl has changed .*18 bytes then, 36 now"):
        check_same(file)
    (tmp_path / "x.jsonl").unlink()
    with pytest.raises(SourceError, match=r"x\.jsonl is missing; put it back"):
        check_same(file)


# --- cutting -------------------------------------------------------------------------------------------------------


def gaps_of(edges: list[int]) -> list[Range]:
    """Ranges that don't touch, from sorted numbers."""
    return [Range(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False)]


GAPS = st.lists(st.integers(0, 100), max_size=8, unique=True).map(sorted).map(gaps_of)


@any_speed
@given(GAPS, st.integers(1, 120))
def test_units_of_lines_tile_what_remains(remaining: list[Range], unit_bytes: int) -> None:
    file = InputFile(0, "x", "/x", FileKind.JSONL, 100, "", 100)
    units = cut(file, remaining, (), unit_bytes)
    pieces = [unit.range for unit in units if unit.range is not None]
    assert [index for piece in pieces for index in range(*piece)] == [index for gap in remaining for index in range(*gap)]
    assert all(0 < end - start <= unit_bytes for start, end in pieces)
    assert all(unit.done == () for unit in units)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> InputFile:
    """100 rows in groups of 30."""
    return find([str(parquet(tmp_path_factory.mktemp("grouped") / "x.parquet", 100, group_rows=30))])[0]


@any_speed
@given(GAPS, st.integers(1, 100))
def test_units_of_parquet_hold_as_many_row_groups_as_their_size_allows(
    grouped: InputFile, remaining: list[Range], unit_rows: int
) -> None:
    unit_bytes = grouped.size * unit_rows // 100
    pieces = [unit.range for unit in cut(grouped, remaining, (), unit_bytes) if unit.range is not None]
    assert [index for piece in pieces for index in range(*piece)] == [index for gap in remaining for index in range(*gap)]
    for start, end in pieces:
        assert end - start <= unit_rows or start // 30 == (end - 1) // 30, "a larger unit is of a single row group"
        next_end = next((min(end // 30 * 30 + 30, gap.end) for gap in remaining if gap.start < end < gap.end), None)
        assert next_end is None or (end % 30 == 0 and next_end - start >= unit_rows), "another group would have fitted"


def test_a_file_that_has_lost_rows_since_it_was_found_is_cut_to_be_refused_where_it_is_read(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", 100)
    (file,) = find([str(path)])
    parquet(path, 30)
    assert [unit.range for unit in cut(file, [Range(20, 60), Range(70, 100)], (), 1)] == [(20, 30), (30, 60), (70, 100)]


@pytest.mark.parametrize("kind", [FileKind.JSONL_GZIP, FileKind.JSONL_ZSTD, FileKind.ARRAY])
def test_what_cant_be_cut_is_one_unit_that_knows_what_is_done(kind: FileKind) -> None:
    file, done = InputFile(0, "x", "/x", kind, 100, "", None), [Range(0, 5), Range(9, 12)]
    assert cut(file, None, done, 10) == [Unit(file, None, (Range(0, 5), Range(9, 12)))]
    assert cut(file, [Range(5, 9)], done, 10) == [Unit(file, None, (Range(0, 5), Range(9, 12)))]
    assert cut(file, [], done, 10) == []


def test_a_listing_that_gives_no_tag_isnt_taken_for_the_state_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stores list files without the time of writing: compared with the time itself, a file would count as rewritten."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    listed = FileStatus(str(path), len(LINES), None, None)
    monkeypatch.setattr(storage, "find", lambda text: Matches([listed]))
    (file,) = find([str(tmp_path)])
    assert file.modified == storage.file_status(str(path)).modified is not None


# --- opened by several processes --------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are opened from here on."""
    paths: list[str] = []
    real = storage.open_read

    def note(path: str, *more: Any) -> Any:
        paths.append(path)
        return real(path, *more)

    for module in (storage, fingerprints):
        monkeypatch.setattr(module, "open_read", note)
    return paths


# --- known from an earlier session ---------------------------------------------------------------------------------


def put_objects(s3: Any) -> dict[str, bytes]:
    """One object of each kind that must be opened to be known."""
    sink = pa.BufferOutputStream()
    described = pa.table({"n": pa.array(range(7), pa.int8())}, metadata={"pandas": "of 7 rows"})  # by which no two are equal
    pq.write_table(described, sink)
    objects = {"a.parquet": sink.getvalue().to_pybytes(), "b.json": b'[{"a": 1}]', "c.json": LINES, "d.jsonl": LINES}
    for name, content in objects.items():
        s3.pipe_file(f"{BUCKET}/in/{name}", content)
    return objects


def test_an_object_with_the_tag_of_an_earlier_session_isnt_opened_again(
    s3: Any, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_objects(s3)
    first = find_corpus([f"{BUCKET}/in"])
    assert [file.kind for file in first.files] == [FileKind.PARQUET, FileKind.ARRAY, FileKind.JSONL, FileKind.JSONL]
    assert [file.extent for file in first.files] == [7, None, len(LINES), len(LINES)]
    assert [schema.metadata for schema in first.schemas.values()] == [None]
    assert list(first.schemas.values()) == [pa.schema([("n", pa.int8())])]
    opened.clear()
    files = {file.path: file for file in first.files}
    again = find_corpus([f"{BUCKET}/in"], 5, files)
    assert again.files == [replace(file, index=file.index + 5) for file in first.files]
    assert (opened, again.schemas) == ([], {})
    s3.pipe_file(f"{BUCKET}/in/b.json", b'[{"b": 1}]')
    assert find_corpus([f"{BUCKET}/in"], 0, files).files[1].fingerprint != first.files[1].fingerprint
    assert opened == [f"{BUCKET}/in/b.json"], "of the same size, but with another tag"


def test_who_waits_for_many_files_is_told_how_far_it_is(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put_objects(s3)
    monkeypatch.setattr("pipelines.data.corpus.find_corpus._NOTE_EVERY_S", -1.0)
    notes: list[str] = []
    find_corpus([f"{BUCKET}/in"], notify=notes.append)
    assert notes == [f"looked at {number} of 4 files" for number in (1, 2, 3, 4)]


# --- opened by several processes --------------------------------------------------------------------------


SCRIPT = """
import sys
from dataclasses import asdict
from pipelines.data.corpus import corpus_files, find_corpus
corpus_files._FOR_PROCESSES, corpus_files._PIECE = 1, 2
try:
    corpus = find_corpus.find_corpus(sys.argv[1:])
except corpus_files.SourceError as error:
    print(error)
else:
    print([asdict(file) for file in corpus.files])
    print(len(set(map(id, corpus.schemas.values()))), *set(corpus.schemas.values()))
"""
"""Without a guard for a process that imports it."""


def test_many_files_are_opened_by_several_processes(tmp_path: Path) -> None:
    for number in range(7):
        parquet(tmp_path / "in" / f"{number}.parquet", 10 + number)
    corpus(tmp_path / "in", "7.json", data=b'[{"a": 1}]')
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, script, tmp_path / "in"],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    alone = find_corpus([str(tmp_path / "in")])
    assert run() == [str([asdict(file) for file in alone.files]), "1 n: int64"]
    (tmp_path / "in" / "4.parquet").write_bytes(b"nothing")
    (message,) = run()
    assert "4.parquet isn't a valid Parquet file" in message


def test_a_process_that_helps_sends_equal_columns_once(tmp_path: Path) -> None:
    paths = [str(parquet(tmp_path / f"{number}.parquet", 10)) for number in range(3)]
    first, *later = corpus_files._inspect_piece([(path, None) for path in paths])
    assert isinstance(first, corpus_files.Inspected)
    assert first.schema == pa.schema([("n", pa.int64())])
    assert all(inspected.schema is first.schema for inspected in later if isinstance(inspected, corpus_files.Inspected))
