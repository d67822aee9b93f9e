"""What is wrong with a recipe's later steps is told before its first engine starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from click.testing import CliRunner

from actors.errors import AssayError, ExpressionError, OutputError, SettingsError, SourceError
from actors.workers.engine_process import alive_nodes
from pipelines.cli.app import cli
from pipelines.cli.recipe_engines import recipe_engines
from pipelines.cli.recipe_preflight import check_stages, check_steps
from pipelines.run.runtime.engine_actors import pool
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.shared_engines import shared_engines
from pipelines.settings.options import validate
from pipelines.settings.recipe import Recipe
from tests.support.corpora import lines, rows, scored, write
from tests.support.judges import judge_folder
from tests.support.local_ray import run_here


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "c.jsonl", lines(rows(3)))


def steps(corpus: Path, run: str = "score", **later: Any) -> dict[str, Any]:
    """A recipe whose run writes into `out`, and whose later steps read that."""
    folder = corpus.parent
    read = {"corpus": {"inputs": [str(corpus)]}, "output": str(folder / "out")}
    runs: dict[str, dict[str, Any]] = {
        "score": {"model": {"model": "tiny-attributes"}},
        "sample": {"model": {"model": "tiny-attributes"}, "policy": {"policy": "tiny-policy"}},
        "refine": {"model": {"model": "tiny-attributes"}, "policy": {"policy": "tiny-policy"}},
        "ensemble": {"models": ["tiny-scalar", {"model": "tiny-attributes", "name": "other"}]},
    }
    made = {name: {"scored": str(folder / "out"), "output": str(folder / name)} | step for name, step in later.items()}
    return {run: read | runs[run], **made}


def checked(recipe: dict[str, Any]) -> None:
    steps_of_recipe = validate(Recipe, recipe).steps
    check_stages([steps_of_recipe])
    check_steps(steps_of_recipe)


@pytest.mark.parametrize(
    ("run", "later"),
    [
        ("score", {"filter": {"where": "scores.helpfulness > 1"}, "export": {"trainer": "steerlm"}}),
        (
            "score",
            {"choose": {"strategy": "majority", "voters": ["helpfulness", "verbosity"]}, "pairs": {"where": "reward > 0"}},
        ),
        ("sample", {"filter": {"where": "candidate_tokens > 3"}}),
        ("refine", {"filter": {"where": "parent is null"}}),
        (
            "ensemble",
            {"filter": {"where": "suspect or scores.other > 1"}, "choose": {"strategy": "majority", "voters": ["other"]}},
        ),
    ],
    ids=str,
)
def test_what_can_be_done_is_let_through(corpus: Path, run: str, later: dict[str, Any]) -> None:
    checked(steps(corpus, run, **later))
    assert [path.name for path in corpus.parent.iterdir()] == ["c.jsonl"]


@pytest.mark.parametrize(
    ("run", "later", "error", "message"),
    [
        ("score", {"filter": {"where": "scores.kindness > 1"}}, ExpressionError, "kindness"),
        ("score", {"filter": {"top_fraction": 0.1, "quantile": 0.5}}, SettingsError, "don't go together"),
        ("score", {"filter": {"where": "reward > 1", "output": "out/kept"}}, OutputError, "or nested"),
        ("score", {"pairs": {"trainer": "nobody"}}, SettingsError, "--for nobody is no format of pairs"),
        ("score", {"choose": {"strategy": "majority", "voters": ["kindness"]}}, SettingsError, "needs the scores kindness"),
        ("score", {"choose": {"strategy": "best", "scored": "nowhere"}}, SourceError, "nowhere isn't there"),
        (
            "score",
            {"choose": {"strategy": "best", "output": "x"}, "pairs": {"output": "x"}},
            SettingsError,
            "choose and pairs",
        ),
        ("sample", {"filter": {"where": "parent is null"}}, ExpressionError, "there is no column parent"),
        ("ensemble", {"export": {"trainer": "steerlm"}}, SettingsError, "which the corpus hasn't"),
    ],
    ids=str,
)
def test_what_cant_be_done_is_told_before_the_run(
    corpus: Path, run: str, later: dict[str, Any], error: type[AssayError], message: str
) -> None:
    with pytest.raises(error, match=message):
        checked(steps(corpus, run, **later))
    assert [path.name for path in corpus.parent.iterdir()] == ["c.jsonl"]


@pytest.mark.parametrize("run", ["score", "ensemble"])
@pytest.mark.parametrize(
    "later",
    [
        {"export": {"trainer": "sft"}},
        {"pairs": {}},
        {"filter": {"where": "reward > 1"}, "export": {"trainer": "sft", "scored": "filter"}},
    ],
    ids=str,
)
def test_made_up_rewards_for_a_trainer_are_refused_before_the_run(corpus: Path, run: str, later: dict[str, Any]) -> None:
    recipe = steps(corpus, run, **later)
    recipe[run]["engine"] = {"engine": "fake"}
    with pytest.raises(SettingsError, match="made up, by --engine fake"):
        checked(recipe)
    for name in later.keys() - {"filter"}:
        recipe[name]["fake_ok"] = True
    checked(recipe)


def test_a_recipe_is_checked_before_its_run(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("the run was started")

    monkeypatch.setattr(score_corpus, "score", started)
    recipe = corpus.parent / "r.yaml"
    recipe.write_text(yaml.safe_dump(steps(corpus, filter={"where": "scores.kindness > 1"})))
    assert isinstance(CliRunner().invoke(cli, ["run", str(recipe)]).exception, ExpressionError)
    recipe.write_text(yaml.safe_dump(steps(corpus, filter={"where": "scores.helpfulness > 1"})))
    assert "was started" in str(CliRunner().invoke(cli, ["run", str(recipe)]).exception)


@pytest.mark.usefixtures("local_ray")
def test_a_later_judge_reads_what_an_earlier_one_gave(corpus: Path) -> None:
    rubric = {"prompt": "{{ row.q_scores.correctness }} {{ response }}", "pattern": "([0-9])", "low": 0, "high": 9}
    model = str(judge_folder(corpus.parent / "judge"))
    recipe: dict[str, Any] = {
        "score": {
            "inputs": str(corpus),
            "output": str(corpus.parent / "one"),
            "model": "tiny-attributes",
            "engine": "fake",
            "prefix": "q_",
        },
        "filter": {
            "scored": str(corpus.parent / "one"),
            "output": str(corpus.parent / "kept"),
            "where": "q_scores.correctness is not null",
        },
        "then": {
            "score": {
                "inputs": str(corpus.parent / "kept"),
                "output": str(corpus.parent / "two"),
                "model": model,
                "rubric": rubric,
                "engine": "fake",
            },
            "filter": {"scored": str(corpus.parent / "two"), "where": "reward is not null"},
        },
    }
    (file := corpus.parent / "r.yaml").write_text(yaml.safe_dump(recipe))
    first, second = run_here("run", file), run_here("run", file)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert second.stderr.count("nothing is left to score") == 2
    result = scored(corpus.parent / "two")
    assert [row["status"] for row in result] == ["scored"] * 3
    assert all(row["q_prompt_hash"] != row["prompt_hash"] for row in result)  # the second's prompts hold what the first gave


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(("alive", "started"), [(alive_nodes, 1), (set, 2)], ids=["alive", "lost with their nodes"])
def test_stages_of_one_model_share_engines_until_another_follows(corpus: Path, alive: Any, started: int) -> None:
    recipe: dict[str, Any] = {}
    for number, model in enumerate(["tiny-scalar", "tiny-attributes", "tiny-attributes"]):  # the last stage first
        folder = {"inputs": str(corpus), "output": str(corpus.parent / f"{number}"), "prefix": f"p{number}_"}
        recipe = {"score": {**folder, "model": model, "engine": "fake"}, **({"then": recipe} if recipe else {})}
    (file := corpus.parent / "r.yaml").write_text(yaml.safe_dump(recipe))
    with (
        patch("pipelines.cli.recipe_engines.shared_engines", wraps=shared_engines) as shared,
        patch("pipelines.run.scoring.shared_engines.pool", wraps=pool) as pools,
        patch("pipelines.run.scoring.shared_engines.alive_nodes", alive),
    ):
        result = run_here("run", file)
    assert (result.returncode, shared.call_count, pools.call_count) == (0, 1, started), result.stderr
    rewards = [[row[f"p{number}_reward"] for row in scored(corpus.parent / f"{number}")] for number in range(3)]
    assert rewards[1] == rewards[2] != rewards[0]


def test_shared_engines_end_before_a_step_that_starts_others_or_another_number_of_them(corpus: Path) -> None:
    events: list[str] = []

    @contextmanager
    def shared(**_: Any) -> Iterator[str]:
        events.append("start")
        yield "shared"
        events.append("end")

    def score_with(**more: Any) -> dict[str, Any]:
        read = {"inputs": [str(corpus)], "output": str(corpus.parent / "out")}
        return {"score": validate(Recipe, {"score": {**read, "model": "tiny-scalar", **more}}).score}

    evaluation = validate(Recipe, {"evaluate": {"scored": ["b.jsonl"], "model": ["tiny-scalar"]}}).steps
    further = validate(Recipe, {"filter": {"scored": "out", "output": "kept", "where": "reward > 0"}}).steps
    stages = [score_with(), further, score_with(), evaluation, score_with(), score_with()]
    stages += [score_with(replicas=2), score_with(max_replicas=2), score_with(max_replicas=2)]
    with patch("pipelines.cli.recipe_engines.shared_engines", shared), recipe_engines(stages) as engines_for:
        for stage in stages:
            for name, step in stage.items():
                events.append(f"{name} {engines_for(step)}")
    pair = ["start", "score shared", "score shared", "end"]
    assert [event for event in events if event != "filter None"] == [*pair, "evaluate None", *pair, *["score None"] * 3]


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"inputs": ["nowhere"], "output": "two"}, "then: score: nowhere isn't there, and no step before it writes it"),
        ({"inputs": ["c.jsonl"], "output": "out"}, "score and then: score both write into out"),
    ],
)
def test_what_no_earlier_stage_writes_is_told_before_the_run(corpus: Path, further: dict[str, Any], message: str) -> None:
    first = validate(Recipe, {"score": {"inputs": ["c.jsonl"], "output": "out", "model": "tiny-scalar"}})
    second = validate(Recipe, {"score": {"model": "tiny-scalar", **further}})
    with pytest.raises(SettingsError, match=message):
        check_stages([first.steps, second.steps])


def test_a_wrong_setting_of_a_later_stage_is_told_before_the_run(corpus: Path) -> None:
    first = validate(Recipe, {"score": {"inputs": ["c.jsonl"], "output": "out", "model": "tiny-scalar"}})
    second = validate(Recipe, {"pairs": {"scored": "out", "output": "pairs", "trainer": "nobody"}})
    with pytest.raises(SettingsError, match="--for nobody is no format of pairs"):
        check_stages([first.steps, second.steps])


def test_a_recipe_doesnt_upload(corpus: Path) -> None:
    recipe = steps(corpus, filter={"where": "reward > 1", "hub": "my-team/best"})
    with pytest.raises(SettingsError, match=r"filter: a recipe doesn't upload; `assay upload FOLDER my-team/best` does"):
        checked(recipe)
