"""Runs that share a score store, on the fake engine: what is found, what never is, and that no number changes by it."""

import json
from pathlib import Path
from typing import Any

import pytest
import ray

import assay
from actors.errors import OutputError, SettingsError
from pipelines.folders.run_folder.columns import FROM_STORE
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.sampling.sample_prompts import sample
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings, SampleSettings
from pipelines.workflows.ensembles.score_ensemble import ensemble
from tests.support.commands import parts_of, running, summary, wait_until
from tests.support.corpora import Notes, chat, lines, rows, scored, settings, write
from tests.support.judges import judge_folder
from tests.support.local_ray import run_here
from tests.support.object_store import BUCKET

pytestmark = pytest.mark.usefixtures("local_ray")


def hits(result: Summary) -> int:
    return result.flags[FROM_STORE]


def run(inputs: Path, output: Path, store: Path, **options: Any) -> Summary:
    return score(settings(inputs, output, store=str(store), **options))


def without_origin(output: Path) -> list[dict[str, Any]]:
    """The rows of a scored folder but for where their scores are from, and from which file they are."""
    return [{name: row[name] for name in row if name not in (FROM_STORE, "row")} for row in scored(output)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", lines(rows(200)))


def test_a_second_corpus_pays_for_what_is_new_and_no_number_changes(tmp_path: Path, corpus: Path) -> None:
    other = write(tmp_path / "other.jsonl", lines([*reversed(rows(250)), chat("?", "<extra_id_1>")]))
    assert hits(run(corpus, tmp_path / "first", tmp_path / "store", part_rows=30)) == 0
    second = run(other, tmp_path / "second", tmp_path / "store", part_rows=17)
    assert (second.responses, second.scored, second.rejected, hits(second)) == (251, 250, 1, 200)
    calm = score(settings(other, tmp_path / "calm"))
    assert without_origin(tmp_path / "second") == without_origin(tmp_path / "calm")
    assert second.quantiles == calm.quantiles
    assert second.prompt_tokens == calm.prompt_tokens
    assert FROM_STORE not in calm.flags
    from_store = {row["id"] for row in scored(tmp_path / "second") if row[FROM_STORE]}
    assert from_store == set(range(200))


def test_duplicates_in_one_run_are_scored_once(tmp_path: Path) -> None:
    twice = write(tmp_path / "twice.jsonl", lines([*rows(100), *rows(100)]))
    result = run(twice, tmp_path / "out", tmp_path / "store", part_rows=16)
    assert (result.scored, hits(result)) == (200, 100)
    by_id: dict[int, set[float]] = {}
    for row in scored(tmp_path / "out"):
        by_id.setdefault(row["id"], set()).add(row["reward"])
    assert all(len(rewards) == 1 for rewards in by_id.values())


def test_another_model_or_setting_never_hits_and_finds_what_it_scored_itself(tmp_path: Path, corpus: Path) -> None:
    """That each setting which decides a score is in the store's identity, `test_identity` says."""
    run(corpus, tmp_path / "first", tmp_path / "store", limit=20)
    weighted: dict[str, Any] = {"weights": {"helpfulness": 1.0}}
    for name, change in (("other", {"model": "tiny-scalar"}), ("weighted", weighted)):
        assert hits(run(corpus, tmp_path / name, tmp_path / "store", limit=20, **change)) == 0
    assert hits(run(corpus, tmp_path / "again", tmp_path / "store", limit=20, **weighted)) == 20


def test_the_same_response_under_another_context_never_hits(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", lines([chat("What is 1 + 1?", "It is 2.")]))
    other = write(tmp_path / "b.jsonl", lines([chat("What is 1 + 2?", "It is 2.")]))
    run(first, tmp_path / "first", tmp_path / "store")
    assert hits(run(other, tmp_path / "second", tmp_path / "store")) == 0


JUDGED: dict[str, Any] = {"family": "genrm-json", "votes": 4, "trace": True, "temperature": 0.6}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judge_folder(tmp_path_factory.mktemp("judges") / "judge")


def pairs(names: tuple[str, str], count: int = 20) -> bytes:
    return lines([{"prompt": f"What is {at} + 1?", names[0]: str(at + 1), names[1]: str(at)} for at in range(count)])


def by_columns(*names: str) -> dict[str, Any]:
    return {"prompt_column": "prompt", "response_column": names}


def test_a_judges_votes_and_texts_come_back_under_the_names_of_the_row(tmp_path: Path, judge: Path) -> None:
    first = write(tmp_path / "a.jsonl", pairs(("good", "bad")))
    other = write(tmp_path / "b.jsonl", pairs(("left", "right"), 25))
    judging = {"model": str(judge), **JUDGED}
    run(first, tmp_path / "first", tmp_path / "store", **judging, **by_columns("good", "bad"))
    second = run(other, tmp_path / "second", tmp_path / "store", **judging, **by_columns("left", "right"))
    assert hits(second) == 40
    score(settings(other, tmp_path / "calm", **judging, **by_columns("left", "right")))
    assert without_origin(tmp_path / "second") == without_origin(tmp_path / "calm")
    assert all(set(answer["shown"]) == {"left", "right"} for row in scored(tmp_path / "second") for answer in row["trace"])


def test_a_damaged_segment_is_named_and_its_rows_are_scored_again(tmp_path: Path, corpus: Path) -> None:
    run(corpus, tmp_path / "first", tmp_path / "store")
    segments = list((tmp_path / "store").rglob("*.segment"))
    for segment in segments:
        segment.write_bytes(segment.read_bytes().replace(b"scored", b"scoreb")[:-1] + b"?")
    notes = Notes()
    second = score(settings(corpus, tmp_path / "second", store=str(tmp_path / "store")), notes)
    assert hits(second) == 0
    warnings = [note for note in notes.losses if "isn't what was written" in note]
    assert all(any(str(segment) in warning for warning in warnings) for segment in segments)
    assert without_origin(tmp_path / "second") == without_origin(tmp_path / "first")


def test_a_run_that_began_without_a_store_goes_on_without_one(tmp_path: Path, corpus: Path) -> None:
    score(settings(corpus, tmp_path / "out"))
    with pytest.raises(OutputError, match="began without one, and its parts have no column from_store"):
        run(corpus, tmp_path / "out", tmp_path / "store")


@pytest.mark.long
def test_a_run_that_began_with_a_store_goes_on_without_one(tmp_path: Path, corpus: Path) -> None:
    run(corpus, tmp_path / "first", tmp_path / "store")
    run(corpus, tmp_path / "out", tmp_path / "store", part_rows=100)
    parts_of(tmp_path / "out")[0].unlink()
    resumed = score(settings(corpus, tmp_path / "out"))
    assert 0 < hits(resumed) < resumed.scored == 200, "the part that was lost is scored by the engine"


def test_a_store_in_the_way_or_out_of_reach_is_refused_before_an_engine_starts(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(SettingsError, match="overlap; a store is a folder of its own"):
        run(corpus, tmp_path / "out", tmp_path / "out" / "store")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="can't be written"):
        run(corpus, tmp_path / "out", tmp_path / "file")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.long
def test_a_store_beside_the_rows_isnt_read_as_rows(tmp_path: Path) -> None:
    write(tmp_path / "in" / "c.jsonl", lines(rows(20)))
    run(tmp_path / "in", tmp_path / "first", tmp_path / "in" / "store")
    assert hits(run(tmp_path / "in", tmp_path / "second", tmp_path / "in" / "store")) == 20


@pytest.mark.long
def test_members_of_an_ensemble_and_single_runs_share_a_store(tmp_path: Path, corpus: Path) -> None:
    run(corpus, tmp_path / "single", tmp_path / "store")
    result = ensemble(
        build(
            EnsembleSettings,
            {"inputs": (str(corpus),), "output": str(tmp_path / "out"), "engine": "fake",
             "models": ("tiny-scalar", "tiny-attributes"), "combine": "mean", "store": str(tmp_path / "store")},
        )
    )  # fmt: skip
    assert {name: hits(member) for name, member in result.members.items()} == {"tiny_scalar": 0, "tiny_attributes": 200}
    assert result.combined.scored == 200


def test_candidates_that_were_judged_arent_judged_again(tmp_path: Path) -> None:
    prompts = [{"messages": [{"role": "user", "content": f"What is {at} + 1?"}]} for at in range(12)]
    corpus = write(tmp_path / "p.jsonl", lines(prompts))
    flat = {"inputs": (str(corpus),), "policy": "tiny-genrm", "model": "tiny-attributes", "engine": "fake", "n": 4}
    options = {"policy_max_tokens": 64, "store": str(tmp_path / "store")}
    first = sample(build(SampleSettings, {**flat, **options, "output": str(tmp_path / "first")}))
    second = sample(build(SampleSettings, {**flat, **options, "output": str(tmp_path / "second")}))
    judged = [row for row in scored(tmp_path / "second") if row["status"] == "scored"]
    assert 0 < len(judged) == hits(second.scored) <= 48
    assert (first.usage.judge > 0, second.usage.judge) == (True, 0), "what the judge read this time"
    assert without_origin(tmp_path / "second") == without_origin(tmp_path / "first")


@pytest.mark.long
def test_a_dataset_uses_the_store_of_a_folder(tmp_path: Path, corpus: Path) -> None:
    run(corpus, tmp_path / "first", tmp_path / "store")
    dataset = ray.data.from_items(rows(230))
    result = assay.score(dataset, model="tiny-attributes", engine="fake", store=str(tmp_path / "store"))
    assert sum(row[FROM_STORE] for row in result.take_all()) == 200


@pytest.mark.long
def test_a_killed_run_leaves_nothing_wrong_and_loses_little(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(1500)))
    slow = ("--set", "engine.engine_args.latency_s=0.05", "--set", "engine.max_in_flight=16", "--set", "work.part_rows=50")
    command = ("score", corpus, tmp_path / "out", "--model", "tiny-attributes", "--engine", "fake")
    store = ("--store", tmp_path / "store")
    with running(*command, *slow, *store) as driver:
        wait_until(lambda: len(parts_of(tmp_path / "out")) > 3, driver)
        driver.kill()
        driver.wait(60)
    summary(*command, *store, run=run_here)
    again = summary("score", corpus, tmp_path / "again", *command[3:], *store, run=run_here)
    assert again["flags"][FROM_STORE] > 1000, "all but what the killed engine hadn't written"
    summary("score", corpus, tmp_path / "calm", *command[3:], run=run_here)
    assert without_origin(tmp_path / "again") == without_origin(tmp_path / "calm")


@pytest.mark.long
@pytest.mark.usefixtures("s3_ray")
def test_a_store_in_a_bucket_is_that_on_a_disk(s3: Any, tmp_path: Path) -> None:
    s3.pipe_file(f"{BUCKET}/in/c.jsonl", lines(rows(300)))
    fake = ("--model", "tiny-attributes", "--engine", "fake", "--store", f"{BUCKET}/store")
    first = summary("score", f"{BUCKET}/in", f"{BUCKET}/first", *fake, run=run_here)
    assert (first["flags"][FROM_STORE], first["scored"]) == (0, 300)
    done = run_here("score", f"{BUCKET}/in", f"{BUCKET}/second", *fake)
    assert done.returncode == 0, done.stderr
    assert "300 of 300 responses came from the store" in done.stdout
    (identity,) = s3.glob(f"{BUCKET}/store/v1/*/identity.yaml")
    assert json.loads(s3.cat_file(identity))["family"] == "attributes"
