"""`--set section.name=value`: the names of a recipe, on every command and over a recipe."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from actors.errors import SettingsError
from pipelines.cli.app import _without_overwrite, cli
from pipelines.cli.flags import build_from, settings_options
from pipelines.settings.options import build
from pipelines.settings.recipe import Recipe, read_recipe
from pipelines.settings.run_settings import ScoreSettings, Turns

SCORE = ["c.jsonl", "out", "--model", "m"]


def settings_of(*words: str) -> ScoreSettings:
    """What `score` is called with."""
    built: list[ScoreSettings] = []

    @click.command()
    @click.argument("inputs", nargs=1)
    @click.argument("output")
    @settings_options(ScoreSettings, "inputs", "output")
    def command(**options: Any) -> None:
        built.append(build_from(ScoreSettings, options))

    done = CliRunner().invoke(command, [*SCORE, *words])
    if done.exception is not None:
        raise done.exception
    return built[0]


def refusal(*words: str) -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(*words)
    return str(caught.value)


@pytest.mark.parametrize("path", ["trace", "judge.trace", "model.judge.trace", "model.trace"])
def test_sections_may_be_left_out(path: str) -> None:
    assert settings_of("--set", f"{path}=true").model.judge.trace


@pytest.mark.parametrize(
    ("words", "flat"),
    [
        (["work.part_rows=010"], {"part_rows": 10}),
        (["text=no"], {"text": False}),
        (["corpus.turns=all"], {"turns": Turns.ALL}),
        (["render.system=Be brief: #1, a=b"], {"system": "Be brief: #1, a=b"}),
        (["system_column="], {"system_column": ""}),
        (["log=wandb"], {"log": ("wandb",)}),
        (["log=[wandb, mlflow]"], {"log": ("wandb", "mlflow")}),
        (["weights.a=1", "model.weights.b.c=0.5"], {"weights": {"a": 1.0, "b.c": 0.5}}),
        (["weights={a: 1, b: 2}"], {"weights": {"a": 1.0, "b": 2.0}}),
        (["principles.right=is it right: yes or no?"], {"principles": {"right": "is it right: yes or no?"}}),
        (["engine_args.a=[1, 2]", "engine.engine_args.b.c=x"], {"engine_args": {"a": [1, 2], "b": {"c": "x"}}}),
        (["limit=5"], {"limit": 5}),
    ],
)
def test_a_value_is_read_by_the_type_of_its_setting(words: list[str], flat: dict[str, Any]) -> None:
    given = [word for assignment in words for word in ("--set", assignment)]
    assert settings_of(*given) == build(ScoreSettings, {"inputs": "c.jsonl", "output": "out", "model": "m", **flat})


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["max_in_fligt=3"], "--set max_in_fligt isn't a setting; did you mean engine.max_in_flight? "),
        (["engine.max_tokens=3"], "--set engine.max_tokens isn't a setting; did you mean judge.max_tokens"),
        (["engine.max_in_flight.x=3"], "--set engine.max_in_flight.x isn't a setting; did you mean engine.max_in_flight? "),
        (["zzz=3"], "--set zzz isn't a setting; `assay COMMAND --help-all` lists all that a command has"),
        (["output=x"], "--set output isn't a setting"),
        (["trace"], "--set takes section.name=value, and 'trace' isn't that"),
        (["http://u:secret@host/?a=b"], "--set takes section.name=value, and what was given isn't"),
        (["trace=true", "judge.trace=false"], "--set judge.trace is given twice"),
        (["weights.a=1", "weights={b: 1}"], "--set weights is given twice"),
        (["engine_args.a=[1"], "--set engine_args.a isn't valid YAML: line 1"),
        (["part_rows="], "--set work.part_rows=: must be a whole number"),
        (["weights=a"], "--set model.weights=a: must be a mapping of names to values"),
        (["engine_args.hf_token=secret"], "engine_args.hf_token is a credential"),
    ],
)
def test_a_mistake_is_told_with_its_place(words: list[str], start: str) -> None:
    message = refusal(*(word for assignment in words for word in ("--set", assignment)))
    assert message.startswith(start)
    assert "secret" not in message


def test_an_option_and_its_setting_are_one() -> None:
    assert refusal("--limit", "3", "--set", "corpus.limit=4") == "--limit and --set limit are one setting: give either"


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["score", *SCORE, "--part-rows", "4"], "--part-rows is no option, but a setting: --set work.part_rows=..."),
        (["score", *SCORE, "--no-text"], "--no-text is no option, but a setting: --set text=false"),
        (["serve", "--model", "m", "--cors-origins", "*"], "a setting: --set access.cors_origins=..."),
        (["score", "c.jsonl", "--model", "m"], "INPUTS... and OUTPUT are both needed"),
    ],
)
def test_who_writes_another_command_line_is_told_the_way(words: list[str], way: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, way in done.output) == (2, True), done.output


# --- over a recipe --------------------------------------------------------------------------------------------------

RECIPE = """
score: {inputs: c.jsonl, output: out, model: {model: m, weights: {a: 1}}, part_rows: 4, engine: fake}
filter: {scored: out, where: reward > 0, fields: false}
"""


def read(folder: Path, *assignments: str) -> Recipe:
    file = folder / "r.yaml"
    file.write_text(RECIPE)
    return read_recipe(str(file), assignments)


def test_a_setting_of_a_recipe_is_given_another_value_and_what_else_it_says_stays(tmp_path: Path) -> None:
    before = read(tmp_path).score
    assert before is not None
    for path in ("score.work.part_rows", "score.part_rows", "work.part_rows", "part_rows"):
        step = read(tmp_path, f"{path}=8").score
        assert step is not None
        assert step.work.part_rows == 8
        assert step.model_copy(update={"work": before.work}) == before
    recipe = read(tmp_path, "weights.b=2", "engine.max_in_flight=3", "filter.overwrite=true", "score.corpus.limit=9")
    assert recipe.score is not None
    assert recipe.filter is not None
    assert recipe.score.model.weights == {"a": 1.0, "b": 2.0}
    assert (recipe.score.engine.engine, recipe.score.engine.max_in_flight) == ("fake", 3)
    assert (recipe.filter.overwrite, recipe.filter.fields, recipe.score.overwrite) == (True, False, False)
    assert (recipe.score.corpus.inputs, recipe.score.corpus.limit) == (("c.jsonl",), 9)


@pytest.mark.parametrize(
    ("text", "assignment", "message"),
    [
        (RECIPE, "overwrite=true", "--set overwrite may mean score.overwrite or filter.overwrite: say which"),
        (RECIPE, "sample.n=3", "--set sample.n isn't a setting"),
        (RECIPE, "score.part_rwos=3", "--set score.part_rwos isn't a setting; did you mean work.part_rows"),
        (RECIPE, "part_rows=0", "score.work.part_rows = '0': must be at least 1"),
        ("score: {part_rows: 4, work: {part_rows: 5}}", "part_rows=4", "part_rows is given twice, beside `work` and in it"),
        ("score: 5", "part_rows=4", "r.yaml: score = 5: must be a mapping"),
        ("[]", "part_rows=4", "--set part_rows isn't a setting"),
    ],
)
def test_a_mistake_over_a_recipe(text: str, assignment: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_recipe(str(tmp_path / "r.yaml"), [assignment])
    assert message in str(caught.value)


@pytest.mark.parametrize("command", ["run", "submit"])
def test_recipes_take_it_on_the_command_line(command: str, tmp_path: Path) -> None:
    read(tmp_path)
    done = CliRunner().invoke(cli, [command, str(tmp_path / "r.yaml"), "--set", "score.part_rows=0"])
    assert "score.work.part_rows = '0': must be at least 1" in str(done.exception)


def test_a_command_that_resumes_overwrites_nothing() -> None:
    words = ["run", "r.yaml", "--set", "score.overwrite=true", "--set=overwrite=true", "--set", "prefix=a", "--overwrite"]
    assert _without_overwrite(words) == ["run", "r.yaml", "--set", "prefix=a"]
