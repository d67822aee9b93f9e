"""A run that finds something in its output folder: another run's late writer, broken files, what a deleted folder leaves."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from actors.errors import OutputError, SourceError
from pipelines.cli.status import status
from pipelines.filtering.filter_corpus import keep
from pipelines.prepare.identity import manifest_of
from pipelines.prepare.resolve_run import resolve
from pipelines.run_folder.parts import Parts
from pipelines.runtime.run_timing import read_run_work
from pipelines.scoring import score_corpus
from pipelines.scoring.score_corpus import Run, carry_out, open_run
from pipelines.settings.run_settings import FilterSettings, ScoreSettings
from tests.support.candidates import commit_missing, scored_corpus
from tests.support.corpora import Notes, chat, lines, rows, scored, settings, write

ROWS = 40


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", lines(rows(ROWS)))


def asked(corpus: Path, output: Path, **options: Any) -> ScoreSettings:
    return settings(corpus, output, part_rows=8, **options)


def opened(own: ScoreSettings) -> Run:
    planned = resolve(own)
    return open_run(own, planned, manifest_of(planned, own))


def score(own: ScoreSettings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `score` does, with numbers made up here; gives what was told."""
    monkeypatch.setattr(score_corpus, "_complete", lambda run, *_: commit_missing(run))
    monkeypatch.setattr(score_corpus, "ray_session", lambda **_: nullcontext())
    notes, run = Notes(), opened(own)
    carry_out(run, score_corpus._scoring, notes)
    return notes.losses


@pytest.mark.parametrize("again", [{"overwrite": True}, {"overwrite": True, "limit": 30}])
def test_a_late_writer_of_a_run_that_was_overwritten_counts_for_nothing(
    tmp_path: Path, corpus: Path, again: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(asked(corpus, out))
    old = opened(asked(corpus, out))
    before = {part: Path(old.parts.path(part)).read_bytes() for part in old.parts.listing()}
    new = opened(asked(corpus, out, **again))
    for part, content in before.items():
        old.parts.parts_folder.create(part.name, content)
    old.parts.end_seen(old.manifest.files[0], 1)
    assert new.parts.listing() == []
    assert new.missing() == opened(asked(corpus, tmp_path / "fresh", **again)).missing()
    told = score(asked(corpus, out, **{**again, "overwrite": False}), monkeypatch)
    assert len(scored(out)) == again.get("limit", ROWS)
    assert any(f"{len(before)} files" in line and min(before).name in line for line in told)
    assert {path.name for path in out.glob("set-aside/*/*")} == {part.name for part in before}
    with duckdb.connect() as connection:
        read_by_others = connection.execute(f"select count(*) from '{out}/parts/*.parquet'").fetchall()
    assert read_by_others == [(again.get("limit", ROWS),)]
    assert keep(FilterSettings(scored=str(out), keep="true")).responses == again.get("limit", ROWS)


def test_a_run_that_goes_on_keeps_its_name(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    first = opened(asked(corpus, out)).manifest.run
    assert first
    assert opened(asked(corpus, out)).manifest.run == first
    assert opened(asked(corpus, out, overwrite=True)).manifest.run[:8] == first[:8]
    assert opened(asked(corpus, out)).manifest.run != first
    assert opened(asked(corpus, out, overwrite=True, limit=3)).manifest.run[:8] != first[:8]


# --- files that can't be read --------------------------------------------------------------------------------------


def test_parts_that_cant_be_read_are_named_and_made_again(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(asked(corpus, out))
    before = scored(out)
    empty, truncated, flipped, *_ = sorted((out / "parts").iterdir())
    empty.write_bytes(b"")
    truncated.write_bytes(truncated.read_bytes()[:-30])
    whole, record = flipped.read_bytes(), pq.read_metadata(flipped).row_group(0).column(0)  # which no summary reads
    at = record.data_page_offset - 10
    flipped.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    shutil.copy(sorted((out / "parts").iterdir())[3], out / "parts" / "copy.parquet")
    (out / "parts" / "foo.parquet").write_bytes(b"")
    assert status(str(out)).empty == (empty.name,)
    with pytest.raises(SourceError, match=rf"(?s){empty.name}.*scores this part again"):
        keep(FilterSettings(scored=str(out), keep="true"))
    empty.unlink()
    with pytest.raises(SourceError, match=rf"(?s){truncated.name}.*scores this part again"):
        keep(FilterSettings(scored=str(out), keep="true", partial=True))
    empty.write_bytes(b"")
    told = "\n".join(score(asked(corpus, out), monkeypatch))
    assert scored(out) == before
    for path in (empty, truncated):
        assert path.name in told
    assert "copy.parquet, foo.parquet" in told
    # What is complete is looked at whole by whoever asks for it again.
    assert flipped.name in told + "\n".join(score(asked(corpus, out), monkeypatch))
    assert keep(FilterSettings(scored=str(out), output=str(tmp_path / "kept"), keep="true")).kept == ROWS


def test_a_part_that_the_summary_cant_read_costs_its_own_rows_alone(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(asked(corpus, out))
    gone, broken, *others = sorted((out / "parts").iterdir())
    gone.unlink()
    broken.write_bytes(broken.read_bytes()[:-30])
    inodes = [path.stat().st_ino for path in others]
    assert any(broken.name in line for line in score(asked(corpus, out), monkeypatch))
    assert len(scored(out)) == ROWS
    assert [path.stat().st_ino for path in others] == inodes


def test_a_part_that_is_always_unreadable_ends_the_run(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complete(run: Run, *_: object) -> None:
        commit_missing(run)
        path = Path(run.parts.path(run.parts.listing()[0]))
        path.write_bytes(path.read_bytes()[:-30])

    monkeypatch.setattr(score_corpus, "_complete", complete)
    monkeypatch.setattr(score_corpus, "ray_session", lambda **_: nullcontext())
    with pytest.raises(SourceError, match="can't be read"):
        carry_out(opened(asked(corpus, tmp_path / "out")), score_corpus._scoring, Notes())


@pytest.mark.parametrize("left", [b"", b'{"assay": 1, "iden'])
def test_a_manifest_that_breaks_off_is_written_again_where_the_parts_agree(
    tmp_path: Path, corpus: Path, left: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(asked(corpus, out))
    before = json.loads((out / "manifest.json").read_text())
    inodes = {path.stat().st_ino for path in (out / "parts").iterdir()}
    (out / "manifest.json").write_bytes(left)
    with pytest.raises(OutputError, match="is no manifest of Assay"):
        status(str(out))
    with pytest.raises(OutputError, match="aren't of a run with these settings and files"):
        opened(asked(corpus, out, limit=5))
    assert score(asked(corpus, out), monkeypatch) == []
    after = json.loads((out / "manifest.json").read_text())
    assert after == {**before, "summary": after["summary"], "summary_of": Parts(str(out)).mark()}
    assert {path.stat().st_ino for path in (out / "parts").iterdir()} == inodes


def test_a_manifest_isnt_written_again_for_other_files(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    scored_corpus(asked(corpus, out))
    (out / "manifest.json").write_bytes(b"")
    corpus.write_bytes(corpus.read_bytes() + lines([chat("one more", "row")]))
    with pytest.raises(OutputError, match="--overwrite to delete it"):
        opened(asked(corpus, out))
    assert opened(asked(corpus, out, overwrite=True)).parts.listing() == []


def test_somebodys_broken_file_of_that_name_is_left_alone(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    write(out / "manifest.json", b'{"name": "my site", ')
    write(out / "index.html", b"<html>")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="is no manifest of Assay"):
            opened(asked(corpus, out, overwrite=overwrite))


def test_what_a_session_leaves_in_a_folder_that_was_deleted_refuses_nothing(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    run = opened(asked(corpus, out))
    scored_corpus(asked(corpus, out))
    shutil.rmtree(out)
    write(out / "sessions" / run.parts.note_name("0" * 20, ".json"), b"{}")
    write(out / "engine_killers" / "000000-000000000000-0.json", b"{}")
    assert len(opened(asked(corpus, out)).parts.listing()) == 0


@pytest.mark.parametrize("theirs", ["parts/theirs.parquet", "parts/year=2024/x.parquet", "sessions/notes.txt", "x.txt"])
def test_a_folder_that_holds_somebodys_files_is_refused(tmp_path: Path, corpus: Path, theirs: str) -> None:
    write(tmp_path / "out" / theirs, b"theirs")
    with pytest.raises(OutputError, match="holds something else than a scored corpus"):
        opened(asked(corpus, tmp_path / "out"))


@pytest.mark.parametrize("note", [b"", b'{"seconds": 1', b"[]", b"{}"])
def test_a_sessions_note_that_breaks_off_is_told_and_stops_nothing(
    tmp_path: Path, corpus: Path, note: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(asked(corpus, tmp_path / "out"))
    write(tmp_path / "out" / "sessions" / run.parts.note_name("0" * 20, ".json"), note)
    score(asked(corpus, tmp_path / "out"), monkeypatch)
    assert read_run_work(run.parts).why == (
        f"a session's note can't be read ({tmp_path}/out/sessions/{run.parts.note_name('0' * 20, '.json')}): "
        "its duration is unknown"
    )


def test_notes_of_another_run_tell_nothing_of_this(tmp_path: Path, corpus: Path) -> None:
    run = opened(asked(corpus, tmp_path / "out"))
    write(tmp_path / "out" / "sessions" / Parts("", "f" * 16).note_name("0" * 20, ".json"), b"")
    assert read_run_work(run.parts).why is None
