"""The commit log: a part is there once and whole, and the names alone prove that nothing is missing."""

import errno
import itertools
import os
import random
import resource
import shutil
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import AuditError, OutputError, SourceError
from actors.records import Reading, Reason, Score
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.storage import patience
from pipelines.folders.run_folder import part_content
from pipelines.folders.run_folder.coverage import Piece, audit, file_by_file, gaps, merge_ranges
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table, read_tables
from pipelines.folders.scored_corpus.part_files import drop_unreadable, read_unordered
from pipelines.folders.scored_corpus.summary import readable
from tests.support.corpora import RUN
from tests.support.object_store import BUCKET, TerseStore

any_speed = settings(deadline=None)
TABLE = pa.table({"x": [1, 2, 3]})


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    folder_parts = Parts(str(tmp_path / "run"), RUN)
    folder_parts.create()
    return folder_parts


def part(start: int, end: int, file: int = 0, rows: int = 1, scored: int = 1) -> Part:
    return Part(file, Range(start, end), Counts(rows, scored), RUN)


def drop_overlaps(parts: Parts) -> list[Part]:
    """Repair the folder; the parts that were dropped, each of which a note names."""
    before, notes = parts.listing(), list[str]()
    state = parts.repair(FILES, notes.append)
    assert state.parts == parts.listing()
    dropped = [part for part in before if part not in list(state.parts)]
    assert [note.partition(" ")[0] for note in notes] == [part.name for part in dropped]
    return dropped


def commit(parts: Parts, *wanted: Part) -> None:
    """Parts, each one younger than the one before."""
    for age, member in enumerate(wanted):
        assert parts.commit(member, TABLE, {})
        os.utime(parts.path(member._replace(run=parts.run or RUN)), ns=(0, age))


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


OTHER_RUN = "0a1b2c3d00000000"


# --- names and counts ----------------------------------------------------------------------------------------------

NUMBER = st.integers(0, 10**15)
PARTS = st.builds(
    Part,
    st.integers(0, 10**7),
    st.builds(Range, NUMBER, NUMBER),
    st.builds(Counts, NUMBER, NUMBER, NUMBER, NUMBER),
    st.sampled_from([OTHER_RUN, RUN]),
    st.integers(0, 10**7),
)


@any_speed
@given(PARTS)
def test_a_name_says_all_of_a_part(member: Part) -> None:
    assert Part.parse(member.name) == member


NAMES_OF_OTHERS = (
    "x.parquet",
    "000000-000000000000-000000000001-1-1-0-0.parquet",
    "0-0-1-1-1-0-0-0a1b2c3d4e5f6071.parquet",
    "000000-000000000000-000000000001-1-1-0-0-0a1b2c3d4e5f6071.parquet.tmp",
    "000000-000000000000-000000000001-01-1-0-0-0a1b2c3d4e5f6071.parquet",
    "000000-000000000000-000000000001-1-1-0-0a1b2c3d4e5f6071.parquet",
    "000000-000000000000-00000000000١-1-1-0-0-0a1b2c3d4e5f6071.parquet",
    "000001to000001-000000000000-000000000001-1-1-0-0-0a1b2c3d4e5f6071.parquet",
    "000001to000000-000000000000-000000000001-1-1-0-0-0a1b2c3d4e5f6071.parquet",
    "000001to2-000000000000-000000000001-1-1-0-0-0a1b2c3d4e5f6071.parquet",
)


def test_other_names_are_no_parts() -> None:
    assert [Part.parse(name) for name in NAMES_OF_OTHERS] == [None] * len(NAMES_OF_OTHERS)


def test_counts_are_of_responses_and_add_up() -> None:
    scores = [Score.scored(Reading(1.0, {}), 5), Score.rejected(Reason.TOO_LONG), Score.failed(Reason.NOT_FINITE)]
    counts = Counts.of(2, [*scores, scores[0]])
    assert counts == Counts(rows=2, scored=2, rejected=1, failed=1)
    assert (counts.responses, counts + counts) == (4, Counts(4, 4, 2, 2))


# --- committing ----------------------------------------------------------------------------------------------------


def test_a_part_is_written_whole_and_says_whose_it_is_and_how_it_was_made(parts: Parts) -> None:
    named = part(0, 10, rows=3, scored=3)
    assert parts.commit(named._replace(run=""), TABLE.replace_schema_metadata({"old": "x"}), {"assay": "{}"})
    written = pq.read_table(Path(parts.folder, "parts") / named.name)
    assert written.to_pylist() == TABLE.to_pylist()
    assert written.schema.metadata == {b"assay": b"{}", b"assay_run": RUN.encode()}
    assert everything_in(Path(parts.folder, "parts")) == [named.name]


def test_a_part_is_written_once(parts: Parts) -> None:
    member = part(0, 10)
    assert parts.commit(member, TABLE, {}) is True
    path = Path(parts.folder, "parts") / member.name
    before = path.read_bytes(), path.stat().st_ino
    assert parts.commit(member, TABLE.slice(1), {"other": "x"}) is False
    assert (path.read_bytes(), path.stat().st_ino) == before
    assert everything_in(Path(parts.folder, "parts")) == [member.name]


FAILURES = [
    ("fsync", OSError(errno.ENOSPC, "No space left on device")),
    ("fsync", KeyboardInterrupt()),
    ("link", OSError(errno.EPERM, "Operation not permitted")),
]


@pytest.mark.parametrize(("function", "error"), FAILURES)
def test_a_failed_write_leaves_nothing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(type(error)):
        parts.commit(part(0, 10), TABLE, {})
    assert everything_in(Path(parts.folder)) == []


def test_creating_clears_away_what_was_left_half_written_long_ago_and_nothing_that_somebody_may_be_writing(
    parts: Parts,
) -> None:
    commit(parts, part(0, 10))
    old, new = f"{'01' * 16}.tmp", f"{'02' * 16}.tmp"
    for name in (old, new, "mine.tmp"):
        Path(parts.folder, "parts", name).write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86400
    for name in (old, "mine.tmp"):
        os.utime(Path(parts.folder, "parts", name), (two_days_ago, two_days_ago))
    parts.create()
    assert everything_in(Path(parts.folder, "parts")) == [part(0, 10).name, new, "mine.tmp"]


def test_deleting_leaves_no_part_and_no_folder_to_write_into(parts: Parts, tmp_path: Path) -> None:
    commit(parts, part(0, 10))
    parts.end_seen(FILES[1], 10)
    parts.delete()
    parts.delete()
    assert everything_in(Path(parts.folder)) == []
    with pytest.raises(FileNotFoundError):
        parts.commit(part(0, 10), TABLE, {})
    assert not Path(parts.folder, "parts").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="can't be written"):
        Parts(str(tmp_path / "file")).create()


def test_parts_that_cant_be_deleted_stop_the_run(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path / "run"), RUN)
    parts.create()
    Path(parts.folder, "parts").rename(tmp_path / "elsewhere")
    Path(parts.folder, "parts").symlink_to(tmp_path / "elsewhere")
    commit(parts, part(0, 10))
    with pytest.raises(OutputError, match="can't be deleted"):
        parts.delete()
    assert parts.listing() == [part(0, 10)]


# --- whose a part is -----------------------------------------------------------------------------------------------


def test_parts_and_ends_of_another_run_are_none_of_this(tmp_path: Path) -> None:
    mine, other = (Parts(str(tmp_path), run) for run in (RUN, OTHER_RUN))
    mine.create()
    for run_parts in (mine, other):
        commit(run_parts, part(0, 10))
        run_parts.end_seen(FILES[1], 10)
    commit(other, part(10, 20), part(5, 15))
    assert mine.listing() == [part(0, 10)]
    assert drop_overlaps(mine) == []
    assert len(other.listing()) == 3
    assert mine.extents(FILES)[1] == 10
    assert Parts(str(tmp_path), "f" * 16).extents(FILES)[1] is None
    assert {run: len(listed) for run, listed in mine.runs().items()} == {RUN: 1, OTHER_RUN: 3}


def test_strays_are_named_and_set_aside(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path), RUN)
    parts.create()
    commit(parts, part(0, 10))
    (member,) = parts.listing()
    copy = f"copy of {member.name}"
    shutil.copy(parts.path(member), parts.parts_folder.file(copy))
    inside = (f"old/{member.name}", ".ipynb_checkpoints/a/b.parquet")
    for name in ("foo.parquet", ".DS_Store", f"{'01' * 16}.tmp", *inside):
        Path(parts.parts_folder.file(name)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(parts.path(member), parts.parts_folder.file(name))
    assert parts.listing() == [member]
    strays, notes = sorted([".DS_Store", copy, "foo.parquet", *inside]), list[str]()
    assert parts.strays() == strays
    parts.set_strays_aside(notes.append)
    assert (
        f"5 files among the parts weren't of this run: .DS_Store, {inside[1]}, {copy}, ...; moved to {tmp_path}/set-aside/"
        in notes[0]
    )
    (aside,) = tmp_path.glob("set-aside/*")
    assert sorted(str(path.relative_to(aside)) for path in aside.rglob("*") if path.is_file()) == strays
    parts.set_strays_aside(notes.append)
    assert len(notes) == 1
    assert everything_in(Path(parts.parts_folder.path)) == [member.name, f"{'01' * 16}.tmp"]


def test_the_names_of_parts_arent_held_for_the_sake_of_strays(tmp_path: Path) -> None:
    parts, count = Parts(str(tmp_path), RUN), 5_000
    parts.create()
    for at in range(count):
        Path(parts.path(part(at, at + 1))).touch()
    Path(parts.parts_folder.file("foo.parquet")).touch()
    tracemalloc.start()
    try:
        assert parts.strays() == ["foo.parquet"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * count  # the names alone are more than 100 bytes each
    assert Parts(str(tmp_path / "none"), RUN).strays() == []


def test_strays_in_a_store_are_set_aside(s3: Any) -> None:
    parts = Parts(f"{BUCKET}/strays", RUN)
    parts.create()
    parts.commit(part(0, 10), TABLE, {})
    (member,) = parts.listing()
    parts.parts_folder.sub("old").replace(member.name, b"x")
    assert parts.strays() == [f"old/{member.name}"]
    parts.set_strays_aside(list[str]().append)
    assert (parts.strays(), list(parts.listing())) == ([], [member])
    (aside,) = storage.files_below(f"{BUCKET}/strays/set-aside")
    assert aside.path.endswith(f"/old/{member.name}")


# --- parts that can't be read --------------------------------------------------------------------------------------


def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path), RUN)
    parts.create()
    luck = random.Random(1)
    table = pa.table({"reward": [luck.random() for _ in range(200)], "row": [f"c:{at}" for at in range(200)]})
    parts.commit(part(0, 200, rows=200, scored=200), table, {})
    (member,) = parts.listing()
    path = Path(parts.path(member))
    whole, counts = path.read_bytes(), Counter[str]()
    for at in range(4, len(whole) - 8, 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << luck.randrange(8)]) + whole[at + 1 :])
        counts[_read_back(parts, path, table)] += 1
    assert counts["another"] <= sum(counts.values()) / 100  # in the footer, which has no checksum
    assert counts["refused"] > 5 * counts["equal"]


def _read_back(parts: Parts, path: Path, table: pa.Table) -> str:
    """What became of reading a part, in the ways in which parts are read."""
    try:
        whole_table = pa.concat_tables(read_tables(str(path), table.column_names))
        with duckdb.connect() as connection, readable(parts):
            connection.register("parts", read_unordered(parts, table.schema))
            again = connection.execute("select reward, row from parts").fetchall()
    except SourceError as error:
        assert str(path) in str(error)  # noqa: PT017
        return "refused"
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return "equal" if whole_table.equals(table) and again == rows else "another"


POSITIONS = st.integers(0, 3)


@any_speed
@given(
    st.lists(
        st.builds(
            lambda file, further, start, length: Part(file, Range(start, start + length), Counts(), further=further),
            POSITIONS,
            POSITIONS,
            POSITIONS,
            POSITIONS,
        )
    )
)
def test_pieces_come_file_by_file_whatever_the_parts_overlap(listed: list[Part]) -> None:
    extents: dict[int, int | None] = {0: 5, 1: 0, 2: 7, 3: None, 4: 3, 5: 2, 6: 4}
    expected: dict[int, list[Piece]] = {}
    for listed_part in sorted(listed):
        for index, piece in listed_part.pieces(extents):
            expected.setdefault(index, []).append(Piece(listed_part, piece))
    in_order = [(index, list(pieces)) for index, pieces in file_by_file(sorted(listed), extents)]
    assert in_order == sorted(expected.items())


@pytest.mark.parametrize("partial", [False, True])
def test_with_partial_something_may_be_missing_and_nothing_be_there_twice(partial: bool) -> None:
    files = [InputFile(number, f"{number}", f"/{number}", FileKind.PARQUET, 1, "", None) for number in range(3)]
    extents = {0: 10, 1: None, 2: 5}
    listed = [part(2, 4, rows=2), part(4, 6, rows=2), part(1, 3, file=1, rows=2)]
    if partial:
        assert audit(files, extents, listed, partial=True).rows == 6
    else:
        with pytest.raises(AuditError, match="0: 0 to 2 is missing"):
            audit(files, extents, listed)
    for wrong, why in (
        (part(3, 6, rows=3), "3 to 4 is there twice"),
        (part(6, 11, rows=5), "beyond its end at 10"),
        (part(0, 1, file=3), "aren't listed|doesn't list"),
    ):
        with pytest.raises(AuditError, match=why):
            audit(files, extents, sorted([*listed, wrong]), partial=partial)


@pytest.mark.parametrize("harm", [lambda whole: b"", lambda whole: whole[:-20], lambda whole: whole[:100] + whole[120:]])
def test_a_part_that_cant_be_read_is_dropped_by_name(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    parts, notes = Parts(str(tmp_path), RUN), list[str]()
    parts.create()
    commit(parts, *(part(at, at + 10, rows=3, scored=3) for at in (0, 10)))
    first, second = parts.listing()
    assert drop_unreadable(parts, notes.append) == []
    Path(parts.path(first)).write_bytes(harm(Path(parts.path(first)).read_bytes()))
    with pytest.raises(SourceError, match=first.name):
        list(read_tables(parts.path(first), ["x"]))
    assert drop_unreadable(parts, notes.append) == [first]
    assert parts.listing() == [second]
    assert first.name in notes[0]


@pytest.fixture
def stored(terse_s3: TerseStore, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Three parts in a store, of which the second is damaged. It is asked once."""
    monkeypatch.setattr(patience._process, "patience", patience._Patience(0.0))
    parts = Parts(f"{BUCKET}/run", RUN)
    parts.create()
    for start in (0, 10, 20):
        assert parts.commit(part(start, start + 10, rows=3, scored=3), TABLE, {})
    damaged = parts.listing()[1].name
    parts.parts_folder.replace(damaged, parts.parts_folder.read(damaged)[:-20])
    return parts


def test_a_part_that_a_store_refuses_isnt_dropped(stored: Parts, terse_s3: TerseStore) -> None:
    first, second, third = stored.listing()
    for refused in (first, second, third):
        terse_s3.refused = refused.name
        with pytest.raises(SourceError, match=f"{BUCKET}/run/parts/{refused.name} can't be read: .*No"):
            drop_unreadable(stored, lambda notes: None)
        assert set(stored.listing()) >= {first, third, refused}
    terse_s3.refused = None
    assert stored.listing() == [first, third], "the damaged one has been read before the third"


def test_a_part_isnt_dropped_for_want_of_file_descriptors(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(parts, *(part(at, at + 10, rows=3, scored=3) for at in (0, 10)))
    listed = parts.listing()
    monkeypatch.setattr(Parts, "listing", lambda parts: listed)  # the shortage begins after it
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(SourceError, match="Too many open files"):
            drop_unreadable(parts, lambda notes: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all(Path(parts.path(part)).exists() for part in listed)


def test_a_part_isnt_dropped_for_want_of_memory(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(parts, part(0, 10, rows=3, scored=3))

    def no_memory(*arguments: Any, **named: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 2147483648 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", no_memory)
    with pytest.raises(SourceError, match="too little memory"):
        drop_unreadable(parts, lambda notes: None)
    assert len(parts.listing()) == 1


def test_a_large_part_is_written_and_read_in_groups_of_rows(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads no lists of strings that hold over 2 GiB in one batch, even if each row is small."""
    monkeypatch.setattr(part_content, "_GROUP_BYTES", 10_000)
    table = pa.table({"responses": [[str(number), "x" * 1000] for number in range(95)]})
    assert parts.commit(part(0, 95, rows=95, scored=95), table, {})
    path = parts.path(parts.listing()[0])
    with pq.ParquetFile(path) as parquet:
        sizes = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    assert (sum(sizes), max(sizes)) == (95, 9)
    assert [len(read) for read in read_tables(path, ["responses"])] == sizes
    assert read_table(path).equals(table)
    assert drop_unreadable(parts, lambda notes: None) == []


# --- listing -------------------------------------------------------------------------------------------------------


def test_parts_are_listed_in_order_and_other_files_arent(parts: Parts) -> None:
    committed = [part(10, 20), part(0, 10, file=2), part(0, 10), part(0, 10**13, file=10**6)]
    commit(parts, *committed)
    for stranger in (".DS_Store", "x.parquet", "abc.tmp", "000000-0-1-1-1-0-0.parquet"):
        (Path(parts.folder, "parts") / stranger).write_bytes(b"")
    assert parts.listing() == sorted(committed)
    assert {file: [piece.part for piece in pieces] for file, pieces in file_by_file(parts.listing(), {})} == {
        0: [committed[2], committed[0]],
        2: [committed[1]],
        10**6: [committed[3]],
    }


FILES = [
    InputFile(0, "lines", "/lines", FileKind.JSONL, 30, "", 30),
    InputFile(1, "gzip", "/gzip", FileKind.JSONL_GZIP, 9, "", None),
    InputFile(2, "array", "/array", FileKind.ARRAY, 9, "", None),
    InputFile(3, "rows", "/rows", FileKind.PARQUET, 100, "", 7),
]


def test_ends_are_known_once_they_are_seen(parts: Parts) -> None:
    assert parts.extents(FILES) == {0: 30, 1: None, 2: None, 3: 7}
    for file, extent in ((FILES[1], 10**13), (FILES[1], 10**13), (FILES[2], 0)):
        parts.end_seen(file, extent)
    (Path(parts.folder) / "ends" / ".DS_Store").write_bytes(b"")
    assert parts.extents(FILES) == {0: 30, 1: 10**13, 2: 0, 3: 7}


# --- parts of several files ----------------------------------------------------------------------------------------


def joined(first: int, start: int, last: int, end: int, rows: int = 1) -> Part:
    """A part from a position of a file to one of a later file."""
    return part(start, end, first, rows=rows)._replace(further=last - first)


SMALL = [InputFile(at, f"s{at}", f"/s{at}", FileKind.JSONL, size, "", size) for at, size in enumerate([10, 20, 0, 5, 8])]
ENDS: dict[int, int | None] = {file.index: file.extent for file in SMALL}


def test_a_part_of_several_files_covers_the_end_of_the_first_the_start_of_the_last_and_all_between() -> None:
    assert list(joined(0, 4, 3, 2).pieces(ENDS)) == [(0, Range(4, 10)), (1, Range(0, 20)), (3, Range(0, 2))]
    assert list(part(4, 6).pieces(ENDS)) == [(0, Range(4, 6))]


def test_files_that_share_parts_are_proven_to_be_covered() -> None:
    whole = [part(0, 4), joined(0, 4, 1, 3), part(3, 9, file=1), joined(1, 9, 4, 8)]
    assert audit(SMALL, ENDS, whole).rows == 4
    for at in range(4):
        with pytest.raises(AuditError, match="is missing"):
            audit(SMALL, ENDS, [*whole[:at], *whole[at + 1 :]])
    with pytest.raises(AuditError, match="s1: 3 to 20 is missing"):
        audit(SMALL, ENDS, [*whole[:2], joined(3, 0, 4, 8)])
    with pytest.raises(AuditError, match="s3: 0 to 5 is there twice"):
        audit(SMALL, ENDS, sorted([*whole, part(0, 5, file=3)]))
    with pytest.raises(AuditError, match=r"doesn't list: \[5\]"):
        audit(SMALL, ENDS, [*whole, joined(4, 8, 5, 1)])


def test_overlaps_of_parts_of_several_files_are_repaired(parts: Parts) -> None:
    kept = [joined(0, 4, 1, 3), part(3, 9, file=1), joined(3, 0, 4, 8)]
    late = [part(3, 5), part(0, 1, file=1), joined(0, 9, 3, 2), part(1, 2, file=4)]
    commit(parts, *kept, *late)
    assert sorted(drop_overlaps(parts)) == sorted(late)
    assert parts.listing() == kept


# --- gaps and repair -----------------------------------------------------------------------------------------------


@st.composite
def tilings(draw: st.DrawFn, least: int = 0) -> tuple[list[Range], int]:
    """Ranges that tile [0, extent)."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=least, max_size=6))
    edges = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    return [Range(start, end) for start, end in itertools.pairwise(edges)], edges[-1]


@any_speed
@given(tilings(), st.data())
def test_gaps_are_what_is_missing(tiling: tuple[list[Range], int], choice: st.DataObject) -> None:
    whole, extent = tiling
    done = [member for member in whole if choice.draw(st.booleans())]
    missing = gaps(done, extent)
    assert sorted(at for member in [*done, *missing] for at in range(*member)) == list(range(extent))
    assert all(before.end < after.start for before, after in itertools.pairwise(missing))


def test_ranges_that_overlap_leave_no_more_gaps_than_all_of_them() -> None:
    done = merge_ranges([Range(0, 8), Range(2, 4), Range(6, 10), Range(10, 12), Range(20, 21)])
    assert done == [Range(0, 10), Range(10, 12), Range(20, 21)]
    assert gaps(done, 30) == [Range(12, 20), Range(21, 30)]


def test_an_overlap_costs_the_younger_part_and_leaves_a_gap(parts: Parts) -> None:
    old, late, beside, other_file = part(0, 10), part(5, 20), part(20, 30), part(5, 20, file=1)
    commit(parts, old, beside, late, other_file)
    assert drop_overlaps(parts) == [late]
    assert parts.listing() == [old, beside, other_file]
    assert gaps([listed.range for listed in parts.listing() if listed.file == 0], 30) == [Range(10, 20)]
    same_stretch = part(0, 10, scored=4)
    commit(parts, same_stretch)
    os.utime(parts.path(same_stretch))
    assert drop_overlaps(parts) == [same_stretch]
    assert drop_overlaps(parts) == []


SOME = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=8, unique=True)


@any_speed
@given(SOME)
def test_repair_keeps_the_oldest_of_what_overlaps(
    tmp_path_factory: pytest.TempPathFactory, stretches: list[tuple[int, int, int]]
) -> None:
    parts = Parts(str(tmp_path_factory.mktemp("run")), RUN)
    parts.create()
    by_age = [part(start, start + length, file) for file, start, length in stretches]
    for age, member in enumerate(by_age):
        path = Path(parts.folder, "parts") / member.name
        path.write_bytes(b"not an empty file")
        os.utime(path, ns=(0, age))
    kept: list[Part] = []
    for member in by_age:
        if all(member.file != other.file or not {*range(*member.range)} & {*range(*other.range)} for other in kept):
            kept.append(member)
    dropped = drop_overlaps(parts)
    assert parts.listing() == sorted(kept)
    assert sorted([*dropped, *kept]) == sorted(by_age)


# --- auditing ------------------------------------------------------------------------------------------------------


def of_kind(kind: FileKind, ranges: list[Range]) -> list[Part]:
    """Parts with as many rows as their ranges hold."""
    return [part(start, end, rows=end - start if kind.by_ordinal else 1) for start, end in ranges]


def check(kind: FileKind, extent: int | None, parts: list[Part]) -> Counts:
    return audit([InputFile(0, "shard-a", "/shard-a", kind, 99, "", extent)], {0: extent}, sorted(parts))


KINDS = st.sampled_from(FileKind)


@any_speed
@given(KINDS, tilings())
def test_a_tiling_is_accepted_and_counted(kind: FileKind, tiling: tuple[list[Range], int]) -> None:
    ranges, extent = tiling
    parts = of_kind(kind, ranges)
    assert check(kind, extent, parts) == Counts(sum(member.counts.rows for member in parts), len(parts))


def moved(member: Part, start: int, end: int, kind: FileKind) -> Part:
    (other,) = of_kind(kind, [Range(member.range.start + start, member.range.end + end)])
    return other


DAMAGES: dict[str, Callable[[Part, FileKind], list[Part]]] = {
    "dropped": lambda member, kind: [],
    "duplicated": lambda member, kind: [member, member._replace(counts=member.counts + Counts(0, 1))],
    "shifted on": lambda member, kind: [moved(member, 1, 1, kind)],
    "longer": lambda member, kind: [moved(member, 0, 1, kind)],
    "shorter at the end": lambda member, kind: [moved(member, 0, -1, kind)],
    "shorter at the start": lambda member, kind: [moved(member, 1, 0, kind)],
    "with an empty one": lambda member, kind: [member, moved(member, 0, member.range.start - member.range.end, kind)],
}


@pytest.mark.parametrize("damage", DAMAGES)
@any_speed
@given(KINDS, tilings(least=1), st.data())
def test_anything_else_is_refused_by_name(
    damage: str, kind: FileKind, tiling: tuple[list[Range], int], choice: st.DataObject
) -> None:
    ranges, extent = tiling
    parts = of_kind(kind, ranges)
    at = choice.draw(st.integers(0, len(parts) - 1))
    damaged = [*parts[:at], *DAMAGES[damage](parts[at], kind), *parts[at + 1 :]]
    with pytest.raises(AuditError, match="shard-a"):
        check(kind, extent, damaged)


@pytest.mark.parametrize("kind", [FileKind.PARQUET, FileKind.ARRAY])
def test_a_part_of_ordinals_has_as_many_rows_as_its_ranges(kind: FileKind) -> None:
    tables = [InputFile(index, f"t{index}", f"/t{index}", kind, 99, "", 5) for index in range(3)]
    ends: dict[int, int | None] = dict.fromkeys(range(3), 5)
    assert check(kind, 5, [part(0, 5, rows=5)]).rows == 5
    assert audit(tables, ends, [joined(0, 0, 2, 5, rows=15)]).rows == 15
    for rows in (4, 6):
        with pytest.raises(AuditError, match=f"shard-a: .*5 positions hold {rows} rows"):
            check(kind, 5, [part(0, 5, rows=rows)])
    with pytest.raises(AuditError, match="15 positions hold 14 rows"):
        audit(tables, ends, [joined(0, 0, 2, 5, rows=14)])


@pytest.mark.parametrize("kind", FileKind)
def test_an_empty_file_needs_no_part_and_takes_none(kind: FileKind) -> None:
    assert check(kind, 0, []) == Counts()
    with pytest.raises(AuditError, match="shard-a"):
        check(kind, 0, [part(0, 1)])


def test_a_file_without_a_known_end_isnt_proven() -> None:
    with pytest.raises(AuditError, match="shard-a: not all of its rows are in the parts"):
        check(FileKind.JSONL_GZIP, None, [part(0, 10)])
