"""The speed of an engine, measured for a plan on the first rows of its corpus."""

from pathlib import Path

import pytest

from actors.errors import SourceError
from actors.settings.replica import EngineSettings
from pipelines.cli import probe_speed as probes
from pipelines.cli.probe_speed import probe_speed
from pipelines.estimate.cost import EngineSpeed
from pipelines.run_folder.manifest import read_manifest
from pipelines.run_folder.parts import Parts
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import ScoreSettings
from tests.support.corpora import chat, lines, rows, write
from tests.support.local_ray import run_here


def plan_settings(path: Path) -> PlanSettings:
    return build(PlanSettings, {"inputs": (str(path),), "model": "tiny-attributes", "probe": True})


@pytest.fixture
def fake_engine(local_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = probes._probe_run

    def probe_run(settings: PlanSettings, folder: str) -> ScoreSettings:
        return real(settings, folder).model_copy(update={"engine": EngineSettings(engine="fake")})

    monkeypatch.setattr(probes, "_probe_run", probe_run)


def test_the_first_rows_are_scored_and_the_speed_says_of_how_many(tmp_path: Path, fake_engine: None) -> None:
    said: list[str] = []
    speed = probe_speed(plan_settings(write(tmp_path / "c.jsonl", lines(rows(1000)))), said.append)
    assert said[0] == "--probe: starting an engine and scoring the first 256 rows, which ends 60 s after its first part"
    assert speed.read > 0
    assert speed.start_s is not None
    assert " tokens of 256 responses in " in speed.source


def test_it_ends_when_its_time_is_over(tmp_path: Path, fake_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "MOST_S", 0.0)
    runs, real = [], probes._speed

    def speed_of(parts: Parts, prefix: str) -> EngineSpeed:
        manifest = read_manifest(parts.folder)
        assert manifest is not None
        runs.append(manifest.summary)
        return real(parts, prefix)

    monkeypatch.setattr(probes, "_speed", speed_of)
    speed = probe_speed(plan_settings(write(tmp_path / "c.jsonl", lines(rows(1000)))), lambda text: None)
    assert speed.read > 0
    assert runs == [None], "it was ended before its summary"


def test_rows_that_are_all_rejected_tell_nothing(tmp_path: Path, fake_engine: None) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*[chat("q", "<extra_id_1>")] * 256, *rows(100)]))
    with pytest.raises(SourceError, match="only 0 of the 256 responses in the 256 rows looked at could be judged"):
        probe_speed(plan_settings(corpus), lambda text: None)


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_plan_with_a_probe_of_a_real_engine(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(300)))
    without = run_here("plan", corpus, "--model", "tiny-attributes")
    for option in ("--probe", "--like", "--tokens-per-s"):
        assert option in without.stdout
    done = run_here("plan", corpus, "--model", "tiny-attributes", "--probe")
    assert done.returncode == 0, done.stderr
    assert "measured by --probe on this machine: " in done.stdout
    assert "CPU-hours" in done.stdout
    assert "GPU-hours" not in done.stdout
