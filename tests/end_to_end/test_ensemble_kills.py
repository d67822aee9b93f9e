"""An ensemble is killed, driver and all, while a model scores and while parts are combined.

The same command goes on and gives what a calm one gives.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.folders.run_folder.parts import Parts
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles import score_ensemble
from pipelines.workflows.ensembles.score_ensemble import ensemble
from tests.support.commands import kill, parts_of, running, wait_until
from tests.support.corpora import chat, lines, write

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]

PROMPTS, RESPONSES = 30, 6

ENSEMBLE = """
import json, sys
from pipelines.workflows.ensembles import score_ensemble
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
if "max_in_flight" in (settings := json.loads(sys.argv[1])):
    score_ensemble._GROUP_RESPONSES = score_ensemble._WAVE = 1
score_ensemble.ensemble(build(EnsembleSettings, settings))
"""
"""Where it is killed, parts are combined one by one: there must be something left to do."""


def settings(corpus: Path, output: Path, **engine: Any) -> str:
    models = ["tiny-scalar", "tiny-attributes"]
    return json.dumps(
        {"inputs": [str(corpus)], "output": str(output), "models": models, "engine": "fake", "part_rows": 6, **engine}
    )


def rows_of(output: Path) -> list[dict[str, Any]]:
    parts = Parts(str(output))
    return [row for part in parts.listing() for row in pq.read_table(output / "parts" / part.name).to_pylist()]


def test_a_killed_ensemble_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [chat(f"What is {prompt} + 1?", f"{prompt} {answer}") for prompt in range(PROMPTS) for answer in range(RESPONSES)]
    corpus, output = write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "out"
    ensemble(build(EnsembleSettings, json.loads(settings(corpus, tmp_path / "calm"))))
    expected = rows_of(tmp_path / "calm")
    assert len(expected) == PROMPTS * RESPONSES

    text = settings(corpus, output, engine_args={"latency_s": 0.05}, max_in_flight=2)
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
        monkeypatch.setattr(score_ensemble, name, 1)
    ensemble(build(EnsembleSettings, json.loads(text)))
    assert rows_of(output) == expected
    assert json.loads((output / "manifest.json").read_text())["summary"] is not None
    assert {path: path.stat().st_ino for path in kept} == kept, "what was done is not done again"
