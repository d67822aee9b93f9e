"""A filter is killed, driver and all, while its workers write; the same filter goes on and gives what a calm one gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.run_settings import FilterSettings
from tests.support.commands import kill, running, wait_until
from tests.support.selections import corpus, grades, numbers, prompts_of

ROWS = 800

FILTER = """
import json, sys
from pipelines.results.filtering import filter_corpus
from pipelines.settings.run_settings import FilterSettings
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
    folder = corpus(tmp_path / "in", grades(ROWS, seed=6), prompts_of(ROWS, seed=7))
    calm = keep(FilterSettings(scored=folder, output=str(tmp_path / "calm"), **selection))
    settings = {"scored": folder, "output": str(tmp_path / "out"), "rest": str(tmp_path / "rest"), **selection}
    done = tmp_path / "rest" / "done"
    with running(json.dumps(settings), program=("-c", FILTER)) as driver:
        wait_until(lambda: len(list(done.glob("*.json"))) >= 10, driver)
        kill(driver)
    written = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.parquet")}
    noted = {path.stem for path in done.glob("*.json")} & {path.stem for path in (tmp_path / "out/done").glob("*.json")}
    assert 10 <= len(noted) < ROWS // 10
    assert json.loads((tmp_path / "out" / "filter.json").read_text())["summary"] is None

    with running(json.dumps(settings), program=("-c", FILTER)) as driver:
        wait_until(lambda: False, driver)
    assert json.loads((tmp_path / "out" / "filter.json").read_text())["summary"] == json.loads(json.dumps(calm.as_json()))
    assert numbers(tmp_path / "out") == numbers(tmp_path / "calm")
    assert sorted(numbers(tmp_path / "out") + numbers(tmp_path / "rest")) == list(range(ROWS))
    after = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.parquet")}
    kept_as_it_was = {name for name in written if name.removeprefix("kept-").removesuffix(".parquet") in noted}
    assert kept_as_it_was
    assert all(after[name] == written[name] for name in kept_as_it_was), "what was done is not written again"
    assert not done.exists()
    names = {path.name for path in (tmp_path / "out").iterdir()} - after.keys()
    assert names == {"README.md", "_responses", "filter.json", "recipe.yaml"}, "what a kill left half written is gone"
