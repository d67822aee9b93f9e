"""Cascades on the fake engine, of judges that agree because they weigh the same outputs: decided, resumed, refused."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.json
import pyarrow.parquet as pq
import pytest

from actors.errors import ExpressionError, OutputError, RunStopped, SettingsError
from bench.cascade import compare
from pipelines.cli.status import status
from pipelines.folders.scored_corpus.cascade_lines import cascade_lines
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import CascadeSettings
from pipelines.workflows.cascades.score_cascade import CascadeSummary, cascade
from tests.pipelines.workflows.ensembles.test_score_ensemble import Kill, KilledAt
from tests.support import corpora
from tests.support.commands import sets
from tests.support.corpora import Notes, chat, lines, scored, write
from tests.support.ensembles import written
from tests.support.local_ray import run_here

LARGE = {"model": "tiny-attributes", "name": "large", "weights": {"helpfulness": 1.0, "coherence": 1.0}}
SMALL = {"model": "tiny-attributes", "name": "small", "weights": {"helpfulness": 1.0, "coherence": 0.9}}
MIDDLE = {"model": "tiny-attributes", "name": "middle", "weights": {"helpfulness": 1.0, "coherence": 0.8}}
ROUGH = {"model": "tiny-attributes", "name": "rough", "weights": {"helpfulness": 1.0, "coherence": 0.4}}
FAR = {"model": "tiny-scalar", "name": "far"}
WHERE = "reward >= 0"


def settings(corpus: Path, output: Path, **options: Any) -> CascadeSettings:
    flat = {"models": (SMALL, LARGE), "engine": "fake", "where": WHERE, **options}
    return build(CascadeSettings, {"inputs": (str(corpus),), "output": str(output), **flat})


def run(corpus: Path, output: Path, progress: Any = None, **options: Any) -> CascadeSummary:
    return cascade(settings(corpus, output, **options), progress)


def make_corpus(tmp_path: Path, count: int = 2400, **more: Any) -> Path:
    draw = random.Random(0)
    rows = [chat(f"What is {n} + 1?", f"It is {draw.randrange(9**9)}.", id=n, **more) for n in range(count)]
    return write(tmp_path / "c.jsonl", lines(rows))


def large_alone(corpus: Path, output: Path) -> Path:
    """The large judge on all rows."""
    model = {name: value for name, value in LARGE.items() if name != "name"}
    score(corpora.settings(corpus, output, **model))
    return output


@pytest.mark.usefixtures("local_ray")
def test_most_rows_are_settled_as_the_large_judge_would(tmp_path: Path) -> None:
    corpus, notes = make_corpus(tmp_path), Notes()
    result = run(corpus, tmp_path / "out", notes, sample=600)
    kept, wrong, wanted, lost = compare(tmp_path / "out", large_alone(corpus, tmp_path / "large"), WHERE)
    assert kept > 900
    assert max(wrong / kept, lost / wanted) <= 0.05
    small, large = result.cascade["stages"]
    assert (small["rows"], small["sample"], small["why"]) == (2400, 600, "")
    assert large["rows"] < 0.6 * 2400  # a slice of 600, another of 300, and the band
    assert any("rows (" in note and "open for large" in note for note in notes.all)
    by_stage: dict[str, list[dict[str, Any]]] = {"small": [], "large": []}
    for row in scored(tmp_path / "out"):
        by_stage[row["stage"]].append(row)
        assert row["reward"] == row["scores"][row["stage"]]
        assert json.loads(row["record"])["id"] == row["id"]
    assert len(by_stage["large"]) == large["rows"]
    assert all(row["kept"] == (row["reward"] >= 0) for row in by_stage["large"])
    assert all(row["kept"] == (row["reward"] >= small["high"]) for row in by_stage["small"])
    assert all(not small["low"] <= row["reward"] < small["high"] for row in by_stage["small"])
    # A row has the reward that the large judge gives it by itself, and not that of another row.
    alone = {row["row"]: row["reward"] for row in scored(tmp_path / "large")}
    assert all(row["reward"] == alone[row["row"]] for row in by_stage["large"])
    check = result.cascade["check"]
    assert check["responses"] == 300
    assert check["error"][0] <= wrong / kept <= check["error"][1]
    assert len(dict(cascade_lines(result.cascade))) == 5
    assert keep(FilterSettings(scored=str(tmp_path / "out"), where="kept")).kept == kept
    with pytest.raises(SettingsError, match="of a cascade's models"):
        keep(FilterSettings(scored=str(tmp_path / "out"), top_fraction=0.5))


@pytest.mark.usefixtures("local_ray")
def test_three_models_and_several_responses_to_a_row(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = [
        {"prompt": f"What is {n} + 1?", "responses": [f"It is {draw.randrange(9**9)}." for _ in range(1 + n % 3)], "id": n}
        for n in range(2400)
    ]
    corpus = write(tmp_path / "c.jsonl", lines([*rows[:700], "no object", *rows[700:], *rows]))
    how = {"models": (ROUGH, MIDDLE, LARGE), "sample": 1200, "error": 0.1, "miss": 0.1, "limit": 2401}
    result = run(corpus, tmp_path / "out", **how)
    assert run(corpus, tmp_path / "out", **how) == result
    kept, wrong, wanted, lost = compare(tmp_path / "out", large_alone(corpus, tmp_path / "large"), WHERE)
    assert max(wrong / kept, lost / wanted) <= 0.1
    rough, middle, large = (stage["rows"] for stage in result.cascade["stages"])
    assert rough == 2401
    assert 0 < middle < rough
    assert 0 < large < rough
    responses = scored(tmp_path / "out")
    assert {row["stage"] for row in responses} == {"rough", "middle", "large"}
    stages = {row["row"]: row["stage"] for row in responses}
    assert all(stages[row["row"]] == row["stage"] for row in responses), "a row goes on whole"
    (broken,) = (row for row in responses if row["reason"] == "not_an_object")
    assert (broken["stage"], broken["kept"]) == ("rough", False)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(("models", "count", "why"), [((SMALL, LARGE), 200, "too small"), ((FAR, LARGE), 1500, "")])
def test_where_the_bound_cant_be_shown_the_large_judge_sees_all(
    tmp_path: Path, models: tuple[Any, ...], count: int, why: str
) -> None:
    corpus = make_corpus(tmp_path, count)
    result = run(corpus, tmp_path / "out", models=models)
    first, large = result.cascade["stages"]
    assert why in first["why"]
    assert large["rows"] >= 0.9 * count  # by chance a judge that has nothing to say may settle its extremes
    if why:
        assert (first["low"], first["high"], large["rows"], result.cascade["check"]) == (None, None, count, None)
        assert compare(tmp_path / "out", large_alone(corpus, tmp_path / "large"), WHERE)[1::2] == (0, 0)


@pytest.mark.usefixtures("local_ray")
def test_rows_of_parquet_go_on_as_rows_of_parquet(tmp_path: Path) -> None:
    table = pyarrow.json.read_json(make_corpus(tmp_path))
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=500)
    run(tmp_path / "c.parquet", tmp_path / "out", sample=600)
    kept, wrong, *_ = compare(tmp_path / "out", large_alone(tmp_path / "c.parquet", tmp_path / "large"), WHERE)
    assert wrong / kept <= 0.05
    assert {row["id"] for row in scored(tmp_path / "out")} == set(range(2400))


@pytest.mark.usefixtures("local_ray")
@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_cascade_goes_on_to_what_a_calm_one_gives(tmp_path: Path, number: int) -> None:
    corpus = make_corpus(tmp_path)
    how = {"sample": 600, "part_rows": 100, "unit_bytes": 20_000}
    calm = run(corpus, tmp_path / "calm", **how)
    with pytest.raises(Kill):
        run(corpus, tmp_path / "out", KilledAt(number, 3), **how)
    before = written(tmp_path / "out")
    assert before
    assert not status(str(tmp_path / "out")).complete
    assert run(corpus, tmp_path / "out", **how) == calm
    after = written(tmp_path / "out")
    assert {name: after[name] for name in before} == before, "what was scored isn't scored again"
    assert run(corpus, tmp_path / "out", **how) == calm
    assert written(tmp_path / "out") == after


@pytest.mark.usefixtures("local_ray")
def test_a_plan_says_how_many_rows_go_on_and_the_cascade_goes_on_from_it(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path)
    with pytest.raises(RunStopped, match=r"small leaves [\d,]+ of 2,400 rows \(\d+\.\d%\) open for large"):
        run(corpus, tmp_path / "out", sample=600, plan_only=True)
    planned = written(tmp_path / "out")
    assert len([name for name in planned if "large" in name]) > 0
    assert run(corpus, tmp_path / "out", sample=600).cascade["stages"][1]["rows"] >= 900
    assert {name: stamp for name, stamp in written(tmp_path / "out").items() if name in planned} == planned


@pytest.mark.usefixtures("local_ray")
def test_other_bounds_and_scores_that_have_changed_are_refused(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 1500)
    run(corpus, tmp_path / "out", sample=300)
    with pytest.raises(OutputError, match="error"):
        run(corpus, tmp_path / "out", sample=300, error=0.01)
    (tmp_path / "out" / "models" / "small").rename(tmp_path / "small")
    model = {name: value for name, value in FAR.items() if name != "name"}
    score(corpora.settings(corpus, tmp_path / "out" / "models" / "small", **model), None, ("kept", "stage"))
    with pytest.raises(OutputError, match="holds another run"):
        run(corpus, tmp_path / "out", sample=300)


@pytest.mark.usefixtures("local_ray")
def test_the_command_says_the_bound_and_what_each_model_did(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 300)
    models = ("--model", "tiny-scalar", "--model", "tiny-attributes")
    done = run_here(
        "cascade", corpus, tmp_path / "out", *models, "--where", WHERE, "--error", 0.1, *sets("engine.engine=fake")
    )
    assert done.returncode == 0, done.stderr
    assert "Bound: at most 0.1 of the kept responses wouldn't be kept by tiny_attributes (reward >= 0)" in done.stdout
    assert "tiny_scalar: scored 300 rows, and settles nothing" in done.stdout
    assert "tiny_attributes: scored 300 of 300 rows (100.0%), slices included" in done.stdout


def test_what_cant_be_decided_is_refused_before_a_model_runs(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 20)
    with pytest.raises(ExpressionError, match="rewrad"):
        run(corpus, tmp_path / "out", where="rewrad >= 0")
    with pytest.raises(ExpressionError, match="no column row"):
        run(corpus, tmp_path / "out", where="reward >= 0 and row like '%lang=de/%'")
    with pytest.raises(SettingsError, match="compares the responses of a row"):
        run(corpus, tmp_path / "out", models=(SMALL, {"model": "tiny-rm-r1"}))
    with pytest.raises(SettingsError, match="whole corpus"):
        settings(corpus, tmp_path / "out", append=True)
    assert not (tmp_path / "out" / "models").exists()
