"""Commands are killed, driver and all, in the middle of their work; the same command goes on to what a calm one gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.folders.run_folder.part import Part
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import CascadeSettings, EnsembleSettings
from pipelines.workflows.cascades.score_cascade import cascade
from pipelines.workflows.ensembles import combined_corpus
from pipelines.workflows.ensembles.score_ensemble import ensemble
from tests.support.commands import assay, kill, parts_of, running, sets, stamps, summary, wait_until
from tests.support.corpora import chat, lines, rows, scored, write
from tests.support.failures import fail
from tests.support.local_ray import run_here
from tests.support.object_store import BUCKET
from tests.support.selections import corpus, grades, numbers, prompts_of

RESPONSES = 800

FILTER = """
import json, sys
from pipelines.results.filtering import filter_corpus
from pipelines.settings.filter_settings import FilterSettings
filter_corpus._GROUP_PARTS = filter_corpus._OUTPUT_BYTES = 1
filter_corpus.keep(FilterSettings(**json.loads(sys.argv[1])))
"""
"""A file for each part, where a filter would put 64 MiB into one: there must be something left to do when it is killed."""


@pytest.mark.parametrize(
    "selection",
    [
        {"top_k": 1, "per": "prompt"},
        pytest.param({"top_fraction": 0.4}, marks=pytest.mark.chaos),
        pytest.param({"quantile": 0.8}, marks=pytest.mark.chaos),
    ],
    ids=str,
)
@pytest.mark.long
def test_a_killed_filter_goes_on(tmp_path: Path, selection: dict[str, Any]) -> None:
    folder = corpus(tmp_path / "in", grades(RESPONSES, seed=6), prompts_of(RESPONSES, seed=7))
    calm = keep(FilterSettings(scored=folder, output=str(tmp_path / "calm"), **selection))
    settings = {"scored": folder, "output": str(tmp_path / "out"), "rest": str(tmp_path / "rest"), **selection}
    done = tmp_path / "rest" / "done"
    with running(json.dumps(settings), program=("-c", FILTER)) as driver:
        wait_until(lambda: len(list(done.glob("*.json"))) >= 10, driver)
        kill(driver)
    written = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.parquet")}
    noted = {path.stem for path in done.glob("*.json")} & {path.stem for path in (tmp_path / "out/done").glob("*.json")}
    assert 10 <= len(noted) < RESPONSES // 10
    assert json.loads((tmp_path / "out" / "filter.json").read_text())["summary"] is None

    with running(json.dumps(settings), program=("-c", FILTER)) as driver:
        wait_until(lambda: False, driver)
    assert json.loads((tmp_path / "out" / "filter.json").read_text())["summary"] == json.loads(json.dumps(calm.as_json()))
    assert numbers(tmp_path / "out") == numbers(tmp_path / "calm")
    assert sorted(numbers(tmp_path / "out") + numbers(tmp_path / "rest")) == list(range(RESPONSES))
    after = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.parquet")}
    kept_as_it_was = {name for name in written if name.removeprefix("kept-").removesuffix(".parquet") in noted}
    assert kept_as_it_was
    assert all(after[name] == written[name] for name in kept_as_it_was), "what was done is not written again"
    assert not done.exists()
    names = {path.name for path in (tmp_path / "out").iterdir()} - after.keys()
    assert names == {"README.md", "_responses", "filter.json", "recipe.yaml"}, "what a kill left half written is gone"


CASCADE = """
import json, sys
from pipelines.settings.options import build
from pipelines.settings.run_settings import CascadeSettings
from pipelines.workflows.cascades.score_cascade import cascade
cascade(build(CascadeSettings, json.loads(sys.argv[1])))
"""


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_killed_cascade_goes_on(tmp_path: Path) -> None:
    rows = [chat(f"What is {number} + 1?", f"{number * 7919 % 1009}") for number in range(900)]
    corpus, output = write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "out"
    small, large = (
        {"model": "tiny-attributes", "name": name, "weights": {"helpfulness": 1.0, "coherence": weight}}
        for name, weight in (("small", 0.9), ("large", 1.0))
    )
    how: dict[str, Any] = {"inputs": [str(corpus)], "models": [small, large], "where": "reward >= 0", "sample": 250}
    how |= {"engine": "fake", "part_rows": 10, "unit_bytes": 20_000}
    calm = cascade(build(CascadeSettings, {**how, "output": str(tmp_path / "calm")}))
    text = json.dumps({**how, "output": str(output), "engine_args": {"latency_s": 0.05}, "max_in_flight": 2})
    kept: dict[Path, int] = {}
    # In the first model's run, in the slice of the last, and in the rows that stay open, which are further files.
    for model, name, count in (("small", "0000", 5), ("large", "000000-", 5), ("large", "00000[12]", 3)):
        folder = output / "models" / model / "parts"
        with running(text, program=("-c", CASCADE)) as driver:
            wait_until(lambda: len(list(folder.glob(f"{name}*.parquet"))) >= count, driver)  # noqa: B023
            kill(driver)
        paths = list(folder.glob(f"{name}*.parquet"))
        assert len(paths) >= count
        assert not (output / "parts").exists() or not parts_of(output)
        kept |= {path: path.stat().st_ino for path in output.glob("models/*/parts/*.parquet")}
    assert cascade(build(CascadeSettings, json.loads(text))).cascade == calm.cascade
    assert all(path.stat().st_ino == inode for path, inode in kept.items()), "what was scored is not scored again"
    columns = ("row", "reward", "kept", "stage")
    assert [[row[name] for name in columns] for row in scored(output)] == [
        [row[name] for name in columns] for row in scored(tmp_path / "calm")
    ]


PROMPTS, ANSWERS = 30, 6

ENSEMBLE = """
import json, sys
from pipelines.workflows.ensembles import combined_corpus, score_ensemble
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
if "max_in_flight" in (settings := json.loads(sys.argv[1])):
    combined_corpus._GROUP_RESPONSES = combined_corpus._WAVE = 1
score_ensemble.ensemble(build(EnsembleSettings, settings))
"""
"""Where it is killed, parts are combined one by one: there must be something left to do."""


def ensemble_settings(corpus: Path, output: Path, **engine: Any) -> str:
    models = ["tiny-scalar", "tiny-attributes"]
    return json.dumps(
        {"inputs": [str(corpus)], "output": str(output), "models": models, "engine": "fake", "part_rows": 6, **engine}
    )


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_killed_ensemble_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [chat(f"What is {prompt} + 1?", f"{prompt} {answer}") for prompt in range(PROMPTS) for answer in range(ANSWERS)]
    corpus, output = write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "out"
    ensemble(build(EnsembleSettings, json.loads(ensemble_settings(corpus, tmp_path / "calm"))))
    expected = scored(tmp_path / "calm")
    assert len(expected) == PROMPTS * ANSWERS

    text = ensemble_settings(corpus, output, engine_args={"latency_s": 0.05}, max_in_flight=2)
    stages = [output / "models" / "tiny_attributes", output]
    kept: dict[Path, int] = {}
    for stage in stages:
        with running(text, program=("-c", ENSEMBLE)) as driver:
            wait_until(lambda stage=stage: len(parts_of(stage)) >= 10, driver)  # type: ignore[misc]
            kill(driver)
        paths = parts_of(stage)
        assert 10 <= len(paths) < PROMPTS, f"{stage.name} was done before it could be killed"
        kept |= {path: path.stat().st_ino for path in paths}

    for name in ("_GROUP_RESPONSES", "_WAVE"):
        monkeypatch.setattr(combined_corpus, name, 1)
    ensemble(build(EnsembleSettings, json.loads(text)))
    assert scored(output) == expected
    assert json.loads((output / "manifest.json").read_text())["summary"] is not None
    assert {path: path.stat().st_ino for path in kept} == kept, "what was done is not done again"


FAKE = ("--model", "tiny-attributes", "--engine", "fake")
ROWS, PART_ROWS = 1500, 10


def with_failures(folder: Path, count: int) -> list[dict[str, Any]]:
    """A scored folder in whose every part a response has failed; its rows before that."""
    corpus = write(folder / "c.jsonl", lines(rows(count)))
    summary("score", corpus, folder / "out", *FAKE, *sets(f"work.part_rows={PART_ROWS}"), run=run_here)
    whole = scored(folder / "out")
    fail(folder / "out", dict.fromkeys(range(3, count, PART_ROWS), "engine_timeout"))
    return whole


def failures(folder: Path) -> list[int]:
    """The responses of each part that have failed, as the parts' names say."""
    return [part.counts.failed for path in parts_of(folder) if (part := Part.parse(path.name)) is not None]


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_killed_retry_leaves_old_parts_and_new_ones_and_goes_on(tmp_path: Path) -> None:
    whole, folder = with_failures(tmp_path, ROWS), tmp_path / "out"
    count = len(failures(folder))
    assert sum(failures(folder)) == ROWS // PART_ROWS
    sound = failures(folder).count(0)
    with running("retry", folder) as driver:
        wait_until(lambda: failures(folder).count(0) >= sound + 20, driver)
        kill(driver)
    assert sum(failures(folder)) > 0, "something is still to be retried"
    (noted,) = json.loads((folder / "manifest.json").read_text())["retries"]
    assert (noted["before"]["failed"], noted["after"]) == (ROWS // PART_ROWS, None)
    assert summary("verify", folder, "--sample", 0, run=run_here)["bad"] == {}
    now = scored(folder)
    assert len(now) == ROWS
    assert all(row == as_it_was for row, as_it_was in zip(now, whole, strict=True) if row["status"] == "scored")

    after = summary("retry", folder, run=run_here)["after"]
    assert (after["scored"], after["failed"]) == (ROWS, 0)
    assert failures(folder) == [0] * count
    assert scored(folder) == whole
    sample = summary("verify", folder, "--sample", 300, run=run_here)["sample"]
    assert (sample["compared"], sample["difference"], sample["flips"]) == (300, 0.0, [])


@pytest.mark.long
@pytest.mark.usefixtures("s3_ray")
def test_a_bucket_is_verified_repaired_and_retried(s3: Any, tmp_path: Path) -> None:
    whole = with_failures(tmp_path, 100)
    s3.put(str(tmp_path / "out"), f"{BUCKET}/out", recursive=True)
    s3.pipe_file(f"{BUCKET}/c.jsonl", (tmp_path / "c.jsonl").read_bytes())
    place = f"{BUCKET}/out"
    assert summary("retry", place, run=run_here)["after"] == {"rows": 100, "scored": 100, "rejected": 0, "failed": 0}
    assert len(s3.ls(f"{place}/parts")) == 100 // PART_ROWS

    damaged = sorted(s3.ls(f"{place}/parts"))[4]
    content = bytearray(s3.cat_file(damaged))
    content[len(content) // 2] ^= 1
    s3.pipe_file(damaged, bytes(content))
    refused = run_here("verify", place, "--sample", 0)
    assert refused.returncode == 4
    assert damaged.rsplit("/", 1)[1] in refused.stdout + refused.stderr
    assert run_here("verify", place, "--sample", 0, "--repair").returncode == 0
    assert s3.glob(damaged) == []

    local = tmp_path / "fetched"
    s3.get(place, str(local), recursive=True)
    with_gap = {row["row"] for row in scored(local)}
    assert len(with_gap) == 90
    assert [row for row in whole if row["row"] in with_gap] == scored(local)


SLOW = ("--engine", "fake", "--set", "engine.engine_args.latency_s=0.05", "--set", "engine.max_in_flight=8")


@pytest.mark.long
def test_a_killed_evaluation_is_resumed_and_accounts_for_every_item(tmp_path: Path) -> None:
    rows = [{"prompt": f"{number} + 1?", "chosen": f"It is {number + 1}.", "rejected": f"{number}"} for number in range(300)]
    corpus = write(tmp_path / "pairs.jsonl", lines([*rows, {"prompt": "?", "chosen": None, "rejected": "x"}]))
    models, out = ("--model", "tiny-scalar", "--model", "tiny-attributes"), tmp_path / "out"
    command = ("evaluate", f"pairs={corpus}", *models, "--out", out, *SLOW)
    first = out / "scored" / "pairs" / "tiny-scalar"
    with running(*command) as driver:
        wait_until(lambda: len(parts_of(first)) > 1, driver)
        driver.kill()
        driver.wait(60)
    early = stamps(first)
    done = assay(*command, "--json")
    assert done.returncode == 0, done.stderr
    assert early.items() <= stamps(first).items(), "what was committed isn't scored again"
    results = json.loads(done.stdout)["evaluations"]
    assert [result["model"] for result in results] == ["tiny-scalar", "tiny-attributes"]
    for result in results:
        (counts,) = result["subsets"].values()
        assert (counts["items"], counts["graded"]) == (301, 300)
        assert sum(counts["reasons"].values()) == 1
        assert result["figures"][0]["n"] == 300
    assert "made up" in (out / "table.md").read_text()
