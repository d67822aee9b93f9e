"""`verify`: damage is found and named whatever it is, good parts stay, and a sample's rewards are compared."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from actors.errors import AuditError, GateFailed, OutputError, SettingsError, SourceError
from pipelines.cli.app import cli
from pipelines.data.corpus.corpus_files import Range
from pipelines.data.storage.lease import lease
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.part_content import encode
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings
from pipelines.workflows.rescoring.retry_rows import retry
from pipelines.workflows.rescoring.verify_folder import VerifySummary, sample_rows, verify
from tests.support.commands import stamps
from tests.support.corpora import lines, rows, scored, settings, write
from tests.support.failures import change, fail, metadata_of

pytestmark = pytest.mark.usefixtures("local_ray")


def check(folder: Path, **options: Any) -> VerifySummary:
    return verify(build(VerifySettings, {"scored": str(folder), "sample": 0, **options}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """`out` and `other`: five parts of ten rows, by two models; and the corpus."""
    place = tmp_path_factory.mktemp("made")
    corpus = write(place / "c.jsonl", lines(rows(50)))
    score(settings(corpus, place / "out", part_rows=10))
    score(settings(corpus, place / "other", part_rows=10, model="tiny-scalar"))
    return place


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "out", tmp_path / "out")
    return tmp_path / "out"


def part_file(folder: Path, number: int) -> Path:
    return sorted((folder / "parts").iterdir())[number]


def run_of(folder: Path) -> str:
    return part_file(folder, 0).stem.rpartition("-")[2]


# --- damage --------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    """One bit in the first data page of the rewards."""
    content = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    names = [group.column(number).path_in_schema for number in range(group.num_columns)]
    column = group.column(names.index("reward"))
    content[column.data_page_offset + column.total_compressed_size - 20] ^= 1
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_model(path: Path) -> None:
    """Another model's part under the name of ours."""
    others = Path(str(path.parents[2]), "other")
    path.write_bytes(part_file(others, 2).read_bytes())


def renamed(path: Path) -> None:
    """The next part under this name."""
    path.write_bytes(part_file(path.parents[1], 3).read_bytes())


def fewer_rows(path: Path) -> None:
    table, place = pq.read_table(path), "-".join(path.stem.split("-")[:3])
    path.write_bytes(encode(table.slice(1), metadata_of(table), place))


def other_counts(path: Path) -> None:
    path.rename(path.with_name(path.name.replace("-10-10-0-0-", "-10-9-0-1-")))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (flip, "has another checksum than it was written with, or none"),
        (cut_off, "can't be read: "),
        (empty, "can't be read: "),
        (other_model, "can't be read: it was written as 000000-"),
        (renamed, "can't be read: it was written as 000000-"),
        (fewer_rows, "can't be read: it holds 9 responses, and its name says 10"),
        (other_counts, "holds 10 rows (10 scored, 0 rejected, 0 failed), and its name says 10 rows (9 scored"),
    ],
)
def test_a_bad_part_is_found_and_named_and_dropped_alone(
    damage: Callable[[Path], None], problem: str, folder: Path, made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made / "other", tmp_path / "other")
    before = set(folder.glob("parts/*"))
    damage(part_file(folder, 2))
    now = set(folder.glob("parts/*"))
    summary = check(folder)
    ((name, why),) = summary.bad.items()
    assert why.startswith(problem)
    assert not summary.is_sound
    assert set(folder.glob("parts/*")) == now, "dry unless asked"
    assert check(folder, repair=True).dropped == [name]
    assert len(list(folder.glob("parts/*"))) == 4
    assert set(folder.glob("parts/*")) < before | now
    assert check(folder, repair=True).dropped == []


@pytest.mark.parametrize("damage", [flip, pytest.param(other_counts, marks=pytest.mark.long)])
def test_what_was_dropped_is_scored_again(damage: Callable[[Path], None], folder: Path, made: Path) -> None:
    whole = scored(folder)
    damage(part_file(folder, 2))
    assert len(check(folder, repair=True).dropped) == 1
    score(settings(made / "c.jsonl", folder))
    assert scored(folder) == whole
    assert check(folder).is_sound


def test_a_sound_folder_is_left_alone(folder: Path) -> None:
    before = stamps(folder)
    summary = check(folder, repair=True)
    assert (summary.parts, summary.bad, summary.gaps) == (5, {}, None)
    assert stamps(folder) == before


def test_every_byte_counts(folder: Path) -> None:
    path = part_file(folder, 2)
    content = path.read_bytes()
    for index in range(0, len(content), 199):
        damaged = bytearray(content)
        damaged[index] ^= 0x10
        path.write_bytes(damaged)
        assert list(check(folder).bad) == [path.name], index


def test_a_missing_part_is_told(folder: Path) -> None:
    part_file(folder, 2).unlink()
    summary = check(folder)
    assert summary.bad == {}
    assert summary.gaps is not None
    assert "is missing" in summary.gaps


def test_a_part_of_another_run_beside_ours_is_named_and_moved_away(folder: Path, made: Path) -> None:
    stray = Path(shutil.copy(part_file(made / "other", 2), folder / "parts"))
    summary = check(folder)
    assert (summary.strays, summary.bad, summary.gaps, summary.is_sound) == ((stray.name,), {}, None, False)
    assert isinstance(run("verify", str(folder), "--sample", "0").exception, AuditError)
    assert stray.exists(), "dry unless asked"
    assert check(folder, repair=True).is_sound
    assert [path.name for path in (folder / "set-aside").glob("*/*")] == [stray.name]
    assert check(folder).strays == ()


@pytest.mark.parametrize("page_checksums", [False, True])
def test_a_part_without_a_checksum_of_the_whole_is_bad(folder: Path, page_checksums: bool) -> None:
    path = part_file(folder, 2)
    pq.write_table(pq.read_table(path), path, compression="zstd", write_page_checksum=page_checksums)
    assert list(check(folder).bad) == [path.name]


@pytest.mark.parametrize("command", [verify, retry])
def test_what_a_filter_kept_has_no_parts_and_its_corpus_is_named(folder: Path, tmp_path: Path, command: Any) -> None:
    keep(build(FilterSettings, {"scored": str(folder), "output": str(tmp_path / "kept"), "where": "reward > 0"}))
    value = build(VerifySettings if command is verify else RetrySettings, {"scored": str(tmp_path / "kept")})
    with pytest.raises(SourceError, match=f"kept is the result of `filter`, which has no parts; give {folder}, "):
        command(value)


def test_bad_parts_are_dropped_under_the_lease_alone(folder: Path) -> None:
    flip(part_file(folder, 2))
    with lease(str(folder)), pytest.raises(OutputError, match="is being written by another run"):
        check(folder, repair=True)
    assert len(list(folder.glob("parts/*"))) == 5


def test_the_command_ends_with_4_for_a_bad_part_and_with_0_once_it_is_dropped(folder: Path) -> None:
    assert "5 good, 0 bad" in run("verify", str(folder), "--sample", "0").output
    flip(part_file(folder, 2))
    ended = run("verify", str(folder), "--sample", "0")
    assert isinstance(ended.exception, AuditError)
    assert f"{part_file(folder, 2).name} has another checksum" in ended.output
    dropped = run("verify", str(folder), "--sample", "0", "--repair")
    assert dropped.exception is None
    assert "Deleted: " in dropped.output
    assert isinstance(run("verify", str(folder), "--sample", "0").exception, AuditError), "its rows are missing"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words, standalone_mode=False)


# --- the sample ----------------------------------------------------------------------------------------------------


def test_a_sample_gives_the_same_numbers(folder: Path) -> None:
    sample = check(folder, sample=20).sample
    assert sample is not None
    assert (sample.rows, sample.responses, sample.compared, sample.difference, sample.flips) == (20, 20, 20, 0.0, [])


def test_numbers_that_were_changed_are_told(folder: Path) -> None:
    change(folder, 2, "reward", lambda rewards: [reward + 0.25 for reward in rewards])
    fail(folder, {7: "engine_timeout"})
    summary = check(folder, sample=50)
    assert summary.sample is not None
    assert summary.sample.difference == pytest.approx(0.25)
    assert summary.sample.mean_difference == pytest.approx(0.25 * 10 / 49)
    (flip,) = summary.sample.flips
    assert (flip["before"], flip["before_reason"], flip["now"]) == ("failed", "engine_timeout", "scored")
    assert summary.gate_failures(0.3) == []
    assert "reward of c.jsonl:" in summary.gate_failures(0.1)[0]
    assert "differs by 0.25, more than 0.1" in summary.gate_failures(0.1)[0]
    assert summary.gate_failures(None) == []


def test_every_number_of_a_row_counts_for_the_gate(folder: Path) -> None:
    def changed(scores: list[Any]) -> list[Any]:
        scores[3]["coherence"] += 0.5
        del scores[4]["verbosity"]
        return scores

    rows_of_part = change(folder, 2, "scores", changed).column("row").to_pylist()
    summary = check(folder, sample=50)
    assert summary.sample is not None
    assert summary.sample.mean_difference == 0, "of the rewards"
    assert summary.sample.difference == pytest.approx(0.5)
    assert summary.gate_failures(0.4) == [
        f"scores.coherence of {rows_of_part[3]} (final) differs by 0.5, more than 0.4",
        f"1 numbers are there once only: scores.verbosity of {rows_of_part[4]} (final)",
    ]
    assert "scores.verbosity" in summary.gate_failures(0.6)[0]


def test_a_gate_does_not_pass_with_nothing_compared(folder: Path) -> None:
    fail(folder, dict.fromkeys(range(50), "engine_timeout"))
    nothing = check(folder, sample=0)
    assert nothing.gate_failures(1.0) == ["no row was scored again, and --max-difference is of rows that are"]
    assert nothing.gate_failures(None) == []
    ended = run("verify", str(folder), "--sample", "0", "--max-difference", "1")
    assert isinstance(ended.exception, GateFailed)
    assert check(folder, sample=5).gate_failures(1.0) == [
        "none of 5 responses has a reward both times: nothing was compared"
    ]


def test_rows_that_retry_drew_again_are_compared_with_the_same_draw(folder: Path) -> None:
    fail(folder, {7: "no_verdict"})
    retry(build(RetrySettings, {"scored": str(folder)}))
    sample = check(folder, sample=50).sample
    assert sample is not None
    assert (sample.difference, sample.flips) == (0.0, [])


def test_another_model_is_refused_before_the_parts_are_read(folder: Path) -> None:
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("model: tiny-attributes", "model: tiny-scalar"))
    with pytest.raises(OutputError, match="can't be scored again as they were"):
        check(folder, sample=1)
    recipe.unlink()
    with pytest.raises(SettingsError, match="which has the settings of the run, can't be read"):
        check(folder, sample=1)
    assert check(folder).is_sound


def test_every_row_may_be_drawn_and_none_twice() -> None:
    parts = [Part(0, Range(start, start + 1), Counts(rows=count, scored=count)) for start, count in enumerate((3, 0, 4))]
    assert sample_rows(parts, 100, 0) == {parts[0]: (0, 1, 2), parts[2]: (0, 1, 2, 3)}
    drawn = {(part, row) for seed in range(60) for part, (row,) in sample_rows(parts, 1, seed).items()}
    assert len(drawn) == 7
    assert sample_rows(parts, 3, 5) == sample_rows(parts, 3, 5)


def test_a_number_that_is_no_number_does_not_pass(folder: Path) -> None:
    table = change(folder, 2, "reward", lambda rewards: [math.nan, *rewards[1:]])
    name = f"reward of {table.column('row')[0]} (final)"
    assert check(folder, sample=50).gate_failures(9.0) == [f"1 numbers are there once only: {name}"]
