"""`retry` on the fake engine: only failed rows are scored again, all else stays, and a kill leaves old parts or new ones."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from actors.errors import OutputError, SettingsError, SourceError
from pipelines.cli.app import cli
from pipelines.data.storage.lease import lease
from pipelines.folders.run_folder import manifest
from pipelines.folders.run_folder.examples import Example, note
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.part import Counts
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.scored_folder import open_scored
from pipelines.folders.scored_corpus.unscored import part_examples
from pipelines.run.runtime import progress
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.options import build
from pipelines.settings.rescore_settings import RetrySettings
from pipelines.workflows.rescoring.part_rows import REDRAWS_KEY
from pipelines.workflows.rescoring.retry_rows import RetrySummary, retry
from tests.support.corpora import lines, rows, scored, settings, write
from tests.support.failures import change, fail, metadata_of

pytestmark = pytest.mark.usefixtures("local_ray")


def again(folder: Path, **options: Any) -> RetrySummary:
    return retry(build(RetrySettings, {"scored": str(folder), **options}))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "parts").iterdir()}


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """Ten parts of ten rows, whose input is gone."""
    place = tmp_path_factory.mktemp("scored")
    corpus = write(place / "c.jsonl", lines(rows(100)))
    score(settings(corpus, place / "out", part_rows=10))
    corpus.unlink()
    return place / "out"


@pytest.fixture
def folder(scored_once: Path, tmp_path: Path) -> Path:
    """A copy of the scored folder, for each test to change."""
    return Path(shutil.copytree(scored_once, tmp_path / "out"))


def test_failed_rows_get_what_the_run_would_have_given_them_and_no_other_part_is_written(folder: Path) -> None:
    whole, before = scored(folder), contents(folder)
    fail(folder, {3: "engine_timeout", 4: "no_verdict", 55: "engine_timeout"})
    assert [row["status"] for row in scored(folder)].count("failed") == 3
    untouched = {name: content for name, content in contents(folder).items() if name in before}
    summary = again(folder)
    assert (summary.retried, summary.after.failed) == ({"engine_timeout": 2, "no_verdict": 1}, 0)
    assert scored(folder) == whole
    now = contents(folder)
    assert len(now) == 10
    assert {name: now[name] for name in untouched} == untouched
    assert len(untouched) == 8


def test_examples_of_what_was_mended_go_and_the_others_stay(tmp_path: Path) -> None:
    broken = [{"prompt": "q", "response": 5}, *({"prompt": "q", "response": f"{index}"} for index in range(3))]
    corpus = write(tmp_path / "c.jsonl", lines(broken))
    folder = tmp_path / "out"
    score(settings(corpus, folder))
    fail(folder, {2: "no_verdict"})
    (part,) = Parts(str(folder)).listing()
    (broken_row,) = before = part_examples(Parts(str(folder)), part)
    unread = Example("no_verdict", scored(folder)[2]["row"], "final", "Well.")
    table = pq.read_table(Parts(str(folder)).path(part))
    Parts(str(folder)).replace(part, part, table, {**metadata_of(table), **note([*before, unread])})
    assert again(folder).after.failed == 0
    (part,) = Parts(str(folder)).listing()
    assert part_examples(Parts(str(folder)), part) == [broken_row]


def test_only_rows_of_the_reasons_are_scored_again(folder: Path) -> None:
    fail(folder, {3: "engine_timeout", 4: "no_verdict", 55: "no_verdict"})
    summary = again(folder, reasons="engine_timeout,engine_refused")
    assert (summary.retried, summary.after.failed) == ({"engine_timeout": 1}, 2)
    assert [row["reason"] for row in scored(folder)].count("no_verdict") == 2


def test_other_rows_of_a_part_keep_their_numbers_even_if_a_model_would_give_others(folder: Path) -> None:
    change(folder, 0, "reward", lambda rewards: [reward + 1000.0 for reward in rewards])
    fail(folder, {3: "engine_timeout"})
    again(folder)
    rewards = [row["reward"] for row in scored(folder)][:10]
    assert [reward > 900 for reward in rewards] == [number != 3 for number in range(10)]


def test_the_manifest_and_the_parts_say_what_was_retried(folder: Path) -> None:
    fail(folder, {3: "engine_timeout"})
    again(folder)
    manifest = read_manifest(str(folder))
    assert manifest is not None
    assert manifest.summary is not None
    (entry,) = manifest.retries
    assert (entry["before"]["failed"], entry["after"]["failed"], manifest.summary["failed"]) == (1, 0, 0)
    parts = Parts(str(folder))
    written = [pq.read_schema(parts.path(part)).metadata.get(b"assay_retries") for part in parts.listing()]
    (mark,) = [json.loads(text) for text in written if text]
    assert mark[0]["session"] == entry["session"]
    assert mark[0]["made_with"]["model_runner"] == "fake"
    assert pq.read_schema(parts.path(parts.listing()[0])).metadata[b"assay_run"].decode() == manifest.run
    assert again(folder).retried == {}


def test_other_versions_retry_only_if_that_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(folder, {3: "engine_timeout"})
    before = (folder / "manifest.json").read_bytes()
    real = manifest.installed
    monkeypatch.setattr(manifest, "installed", lambda name: "9.9" if name == "torch" else real(name))
    with pytest.raises(OutputError, match=r"(?m)^  torch: '.*' there, '9.9' now$"):
        again(folder)
    assert (folder / "manifest.json").read_bytes() == before
    assert again(folder, accept_versions=True).after.failed == 0
    written = read_manifest(str(folder))
    assert written is not None
    assert written.retries[0]["made_with"]["torch"] == "9.9"


def test_after_a_retry_score_goes_on_and_keeps_the_note(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(30)))
    score(settings(corpus, tmp_path / "out", part_rows=10))
    fail(tmp_path / "out", {3: "engine_timeout"})
    again(tmp_path / "out")
    assert score(settings(corpus, tmp_path / "out")).failed == 0
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest is not None
    assert len(manifest.retries) == 1


def test_killed_between_its_two_steps_the_new_part_counts_and_the_old_one_goes(folder: Path) -> None:
    whole = scored(folder)
    fail(folder, {3: "engine_timeout", 55: "engine_timeout"})
    run = Parts(str(folder))
    old = next(part for part in run.listing() if part.counts.failed)
    content = run.parts_folder.read(old.name)
    again(folder)
    # As a kill before the deletion leaves it: the old part is there beside the new one.
    assert run.parts_folder.create(old.name, content)
    assert len(contents(folder)) == 11
    assert open_scored(str(folder), "filter").counts == Counts(100, 100, 0, 0)
    assert scored(folder) == whole
    assert again(folder).retried == {}
    assert len(contents(folder)) == 10


def test_a_row_that_fails_again_says_its_new_reason_and_counts_as_failed(tmp_path: Path) -> None:
    faults: dict[str, Any] = {"at": {str(token("\x07")): "refuse"}}
    odd = rows(20)
    odd[5]["messages"][1]["content"] = "\x07"
    corpus = write(tmp_path / "c.jsonl", lines(odd))
    score(settings(corpus, tmp_path / "out", part_rows=10, engine_args=faults))
    before = [row["reason"] for row in scored(tmp_path / "out")]
    assert before.count("engine_refused") == 1
    summary = again(tmp_path / "out")
    assert (summary.retried, summary.after.failed) == ({"engine_refused": 1}, 1)
    assert [row["reason"] for row in scored(tmp_path / "out")] == before


def test_all_may_fail_again_however_many_they_are(tmp_path: Path) -> None:
    faults: dict[str, Any] = {"at": {str(token("\x07")): "refuse"}}
    odd = rows(300)
    for row in odd[180:]:  # less than half of the run, and all of its last parts
        row["messages"][1]["content"] = "\x07"
    corpus = write(tmp_path / "c.jsonl", lines(odd))
    score(settings(corpus, tmp_path / "out", part_rows=20, engine_args=faults))
    summary = again(tmp_path / "out")
    assert (summary.retried, summary.after.failed) == ({"engine_refused": 120}, 120)


def test_a_retry_that_was_killed_after_its_last_part_is_ended_by_the_next(folder: Path) -> None:
    fail(folder, {3: "engine_timeout"})
    again(folder)
    ended = read_manifest(str(folder))
    assert ended is not None
    unended = {**ended.retries[-1], "after": None}
    replace(ended, summary=None, retries=(unended,)).write(str(folder))
    assert again(folder).after.failed == 0
    after = read_manifest(str(folder))
    assert after is not None
    assert after.summary == ended.summary
    assert [entry["after"] is None for entry in after.retries] == [True, False]


def test_parquet_with_several_responses_to_a_prompt_is_retried_from_the_parts(tmp_path: Path) -> None:
    pairs = [
        {"prompt": f"What is {number} + 1?", "chosen": f"{number + 1}.", "rejected": "No idea.", "id": number}
        for number in range(40)
    ]
    pq.write_table(pa.Table.from_pylist(pairs), tmp_path / "c.parquet")
    score(settings(tmp_path / "c.parquet", tmp_path / "out", part_rows=10, prefix="judge_", format="preference"))
    whole = scored(tmp_path / "out")
    assert len(whole) == 80
    fail(tmp_path / "out", {27: "engine_timeout"}, prefix="judge_")
    again(tmp_path / "out")
    assert scored(tmp_path / "out") == whole


def other_model(folder: Path) -> None:
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("model: tiny-attributes", "model: tiny-scalar"))


def lost_part(folder: Path) -> None:
    sorted((folder / "parts").iterdir())[5].unlink()


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (other_model, OutputError, "model: 'tiny-attributes' there, 'tiny-scalar' now"),
        (lost_part, SourceError, "isn't complete"),
    ],
)
def test_another_run_or_half_of_one_is_refused(
    folder: Path, damage: Callable[[Path], None], error: type[Exception], message: str
) -> None:
    fail(folder, {3: "engine_timeout"})
    damage(folder)
    before = contents(folder)
    with pytest.raises(error, match=message):
        again(folder)
    assert contents(folder) == before


def test_a_folder_that_another_run_holds_is_refused(folder: Path) -> None:
    fail(folder, {3: "engine_timeout"})
    before = contents(folder)
    with lease(str(folder)), pytest.raises(OutputError, match="is being written by another run"):
        again(folder)
    assert contents(folder) == before


def test_the_command_says_what_became_of_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray pickles it, and the runner's streams can't be.
    monkeypatch.setattr(progress, "TerminalProgress", progress.Progress)
    fail(folder, {3: "engine_timeout", 4: "no_verdict"})
    ended = CliRunner().invoke(cli, ["retry", str(folder), "--reasons", "engine_timeout,cut_off"], standalone_mode=False)
    assert ended.exception is None
    assert "Scored again: 1 responses (1 engine_timeout)\nFailed: 2 before, 1 now" in ended.output


def test_reasons_are_those_for_which_responses_fail() -> None:
    with pytest.raises(SettingsError, match="'too_long' is no reason for which responses fail; these are not_finite"):
        build(RetrySettings, {"scored": "x", "reasons": "too_long"})


def test_a_request_is_drawn_with_other_seeds_only_after_texts_without_a_verdict(folder: Path) -> None:
    fail(folder, {1: "endpoint_failed", 2: "endpoint_refused", 3: "engine_timeout", 4: "no_verdict"})
    again(folder)
    parts = Parts(str(folder))
    marks = pq.read_schema(parts.path(parts.listing()[0])).metadata[REDRAWS_KEY.encode()]
    assert json.loads(marks) == {f"c.jsonl:{start_of(4)} final": [1, 1]}


def start_of(number: int) -> int:
    """Where a row of the corpus begins."""
    return len(lines(rows(number)))


def token(text: str) -> int:
    from transformers import AutoTokenizer

    (number,) = AutoTokenizer.from_pretrained("tiny_models/attributes").encode(text, add_special_tokens=False)
    return int(number)


def test_a_folder_of_a_plugin_that_isnt_installed_is_refused_by_its_name(folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    document["identity"] |= {"family": "acme-units", "family_plugin": "acme-assay 0.1"}
    (folder / "manifest.json").write_text(json.dumps(document))
    recipe = (
        (folder / "recipe.yaml").read_text().replace("tiny-scalar", "acme-units").replace("engine: fake", "engine: none")
    )
    (folder / "recipe.yaml").write_text(recipe)
    with pytest.raises(SettingsError, match=r"acme-units is of acme-assay 0.1 .* not installed .* install acme-assay 0.1"):
        again(folder)
