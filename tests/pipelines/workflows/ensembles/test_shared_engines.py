"""Members of one model and engine are asked on the same engine, which is counted by the processes that hold one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.errors import RunStopped
from actors.timeline import FILE, read
from pipelines.folders.run_folder.member_runs import folder_of
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles.members import members
from pipelines.workflows.ensembles.score_ensemble import EnsembleSummary, ensemble
from tests.actors.models.test_rubric_judge import FIELDS, PATTERN
from tests.pipelines.workflows.ensembles.test_score_ensemble import Kill, KilledAt, of_members
from tests.support.corpora import chat, lines, scored, write
from tests.support.ensembles import written
from tests.support.judges import judge_folder
from tests.support.local_ray import use_ray

ROWS = [chat(f"What is {number} + 1?", f"{number + answer}") for number in range(20) for answer in range(2)]
RUBRICS: dict[str, Any] = {
    "clarity": {"prompt": "Clear? {{ response }}", "json_schema": {"properties": {"score": {"enum": [0, 1, 2]}}}},
    "depth": {"prompt": "Deep? {{ response }}", "max_tokens": 64, "pattern": "([0-9])", "low": 0, "high": 9},
}
DEPTH = 2
"""The number of the member `depth`."""

Starts = Callable[[str], set[int]]


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "moments"
    use_ray({FILE: str(path)})
    return path


@pytest.fixture
def starts(timeline: Path) -> Starts:
    """The processes that have begun a step since the test began."""
    timeline.unlink(missing_ok=True)
    return lambda step: {moment.process for moment in read(timeline) if moment.step == step}


def settings(folder: Path, output: str, model: str, rubrics: dict[str, Any] = RUBRICS, **options: Any) -> EnsembleSettings:
    """The rubrics as members of one model; `engines` holds engine settings of members of their own."""
    engines, engine = options.pop("engines", {}), options.pop("engine", "fake")
    corpus = write(folder / "c.jsonl", lines(ROWS))
    judges = [
        {
            "model": model,
            "family": "rubric",
            "name": name,
            "judge": {"rubric": rubric, "temperature": 0},
            **({"engine": {"engine": engine, **engines[name]}} if name in engines else {}),
        }
        for name, rubric in rubrics.items()
    ]
    flat = {"inputs": (str(corpus),), "output": str(folder / output), "models": tuple(judges), "engine": engine}
    return build(EnsembleSettings, {**flat, "part_rows": 4, "unit_bytes": 900, **options})


def rewards(folder: str) -> list[tuple[Any, ...]]:
    return [(row["row"], row["status"], row["reason"], row["reward"]) for row in scored(Path(folder))]


def as_each_alone(run: EnsembleSettings, apart: Path) -> None:
    """Assert that each member's outcomes are those of a run by itself."""
    for member in members(run):
        alone = member.settings.model_copy(update={"output": str(apart / member.name)})
        score(alone)
        assert rewards(member.settings.output) == rewards(alone.output)


def test_two_rubrics_are_asked_on_one_engine(tmp_path: Path, starts: Starts) -> None:
    run = settings(tmp_path, "out", str(judge_folder(tmp_path / "judge")))
    summary = ensemble(run)
    assert len(starts("engine's actor")) == 1
    assert list(summary.members) == list(RUBRICS)
    assert {member.scored for member in summary.members.values()} == {len(ROWS)}
    assert {member.work["engines"] for member in summary.members.values()} == {1}
    as_each_alone(run, tmp_path / "apart")


def test_another_engine_setting_is_another_engine(tmp_path: Path, starts: Starts) -> None:
    engines = {"depth": {"max_in_flight": 3}}
    ensemble(settings(tmp_path, "out", str(judge_folder(tmp_path / "judge")), engines=engines))
    assert len(starts("engine's actor")) == 2


def run_calm(folder: Path, model: str) -> EnsembleSummary:
    return ensemble(settings(folder, "calm", model))


def test_a_run_that_is_killed_in_the_second_member_goes_on(tmp_path: Path, starts: Starts) -> None:
    model = str(judge_folder(tmp_path / "judge"))
    run_calm(tmp_path, model)
    run = settings(tmp_path, "out", model)
    with pytest.raises(Kill):
        ensemble(run, KilledAt(DEPTH, 3))
    before = of_members(written(tmp_path / "out"))
    depth = folder_of(str(tmp_path / "out"), "depth")
    assert 3 <= len([name for name in before if "/depth/" in name]) < len(ROWS) / 3, "parts of three rows, not all of them"
    starts("engine's actor")
    ensemble(run)
    after = of_members(written(tmp_path / "out"))
    assert {name: after[name] for name in before} == before
    assert rewards(depth) == rewards(folder_of(str(tmp_path / "calm"), "depth"))
    assert scored(tmp_path / "out") == scored(tmp_path / "calm")


def test_an_engine_that_dies_in_each_member_starts_again(tmp_path: Path, starts: Starts) -> None:
    model = str(judge_folder(tmp_path / "judge"))
    run_calm(tmp_path, model)
    starts("engine's actor")
    dying = settings(tmp_path, "out", model, engine_args={"die_after": 30}, max_in_flight=4)
    summary = ensemble(dying)
    assert len(starts("engine's actor")) > 2
    assert {member.scored for member in summary.members.values()} == {len(ROWS)}
    for name in RUBRICS:
        assert rewards(folder_of(str(tmp_path / "out"), name)) == rewards(folder_of(str(tmp_path / "calm"), name))


def test_what_the_engine_cannot_be_started_with_is_said(tmp_path: Path, starts: Starts) -> None:
    run = settings(tmp_path, "out", str(judge_folder(tmp_path / "judge")), engine_args={"at": {"x": "nan"}})
    with pytest.raises(RunStopped, match=r"^the fake engine can't start with these engine arguments: .*'x'"):
        ensemble(run)


@pytest.mark.long
def test_on_vllm_there_is_one_engine_core_and_the_same_numbers(tmp_path: Path, starts: Starts) -> None:
    rubrics = {"pattern": PATTERN, "schema": {**FIELDS, "max_tokens": 200}}
    run = settings(tmp_path, "out", "tiny-r3", rubrics, engine="vllm", limit=12)
    summary = ensemble(run)
    assert len(starts("engine core")) == 1
    assert sum(member.scored for member in summary.members.values()) >= 12
    as_each_alone(run, tmp_path / "apart")
