"""One set of names for all settings, and messages that tell every mistake and its place."""

import re
from pathlib import Path
from typing import Any

import click
import pandas
import pytest
from click.testing import CliRunner

from actors.errors import SettingsError
from actors.settings.replica import EngineSettings, JudgeSettings
from deploy.command import _from_file
from pipelines.cli.flags import given_options, settings_options
from pipelines.cli.status import read_recipe_path
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build, from_yaml, leaves, validate
from pipelines.settings.recipe import read_recipe, write_recipe
from pipelines.settings.run_settings import ScoreSettings, Turns

NEEDED: dict[str, Any] = {"inputs": ("a", "b"), "output": "out", "model": "m"}


# --- flat names ----------------------------------------------------------------------------------------------------


def test_leaves_know_their_sections_and_what_they_are() -> None:
    places = {leaf.name: leaf.sections for leaf in leaves(ScoreSettings)}
    assert (places["inputs"], places["engine"], places["output"]) == (("corpus",), ("engine",), ())
    assert not {"corpus", "render", "work"} & places.keys()
    assert [leaf.name for leaf in leaves(ScoreSettings) if not leaf.about] == []


def test_values_find_their_place() -> None:
    settings = build(ScoreSettings, {**NEEDED, "turns": "all", "tensor_parallel": 2, "engine": "fake", "append": True})
    assert (settings.corpus.inputs, settings.corpus.turns) == (("a", "b"), Turns.ALL)
    assert settings.engine == EngineSettings(engine="fake", tensor_parallel=2)
    assert (settings.model.model, settings.output, settings.append) == ("m", "out", True)
    with pytest.raises(ValueError, match="frozen"):
        settings.output = "other"  # type: ignore[misc]


def test_every_default_given_is_as_none_given() -> None:
    defaults = {leaf.name: leaf.field.get_default(call_default_factory=True) for leaf in leaves(ScoreSettings)}
    assert build(ScoreSettings, defaults | NEEDED) == build(ScoreSettings, NEEDED)


# --- mistakes ------------------------------------------------------------------------------------------------------


def message_of(flat: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        build(ScoreSettings, flat)
    return str(caught.value)


def test_an_unknown_name_is_answered_with_the_one_that_was_meant_and_all_there_are() -> None:
    names = ", ".join(leaf.name for leaf in leaves(ScoreSettings))
    close = message_of({**NEEDED, "tensor_paralel": 2})
    assert close.startswith("tensor_paralel is unknown; did you mean tensor_parallel")
    assert close.endswith(f"Allowed: {names}")
    assert message_of({**NEEDED, "zzz": 2}) == f"zzz is unknown; Allowed: {names}"
    assert message_of({**NEEDED, "corpus": {}}).startswith("corpus is unknown"), "a section is no name"


def test_all_mistakes_are_told_at_once_with_their_values() -> None:
    message = message_of(
        {"inputs": (), "tensor_parallel": 0, "dtype": "float8", "limit": float("nan"), "output": "o", "zzz": 1}
    )
    for mistake in (
        "zzz is unknown",
        "inputs is empty: must have at least 1",
        "limit = nan: must be a finite number",
        "model is missing",
        "dtype = 'float8': must be 'auto', 'float32'",
        "tensor_parallel = 0: must be at least 1",
    ):
        assert mistake in message


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"replicas": 2, "max_replicas": 4}, "replicas is a number that stays, and min_replicas and max_replicas one"),
        ({"replicas": 2, "min_replicas": 1}, "replicas is a number that stays"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas=3 is more than max_replicas=2"),
        ({"min_replicas": 3}, "min_replicas goes with max_replicas"),
    ],
)
def test_a_pool_has_a_number_of_engines_or_bounds_of_it(bounds: dict[str, int], message: str) -> None:
    assert message in message_of({**NEEDED, **bounds})


# --- recipes -------------------------------------------------------------------------------------------------------

RECIPE = """
score:
  corpus: {inputs: [a.jsonl], turns: all}
  output: scored
  model: {model: tiny-scalar}
  engine: {engine_args: {anything: [1, 2]}}
filter:
  scored: scored
  where: reward > 0
"""


def recipe(folder: Path, text: str | bytes) -> str:
    path = folder / "recipe.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def refusal(folder: Path, text: str | bytes) -> str:
    path = recipe(folder, text)
    with pytest.raises(SettingsError) as caught:
        read_recipe(path)
    assert path in str(caught.value)
    return str(caught.value)


def test_a_recipe_is_the_settings_of_its_jobs(tmp_path: Path) -> None:
    jobs = read_recipe(recipe(tmp_path, RECIPE))
    flat = {"inputs": ["a.jsonl"], "turns": "all", "output": "scored", "model": "tiny-scalar"}
    assert jobs.score == build(ScoreSettings, {**flat, "engine_args": {"anything": [1, 2]}})
    assert jobs.filter == FilterSettings(scored="scored", where="reward > 0")
    assert read_recipe(recipe(tmp_path, RECIPE.partition("filter:")[0])).filter is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("score:", "scores:", "scores isn't a setting; did you mean score? Allowed: sample, refine, score"),
        (
            "output:",
            "outputs:",
            "score.outputs isn't a setting; did you mean output or all_outputs or output_price? Allowed: c",
        ),
        ("turns:", "turn:", "score.corpus.turn isn't a setting; did you mean turns? Allowed: inputs, "),
        ("scored: scored", "5: x", "filter.5"),
        ("turns: all", "turns: some", "score.corpus.turns = 'some': must be 'final', 'all' or 'final-answer'"),
        ("{model: tiny-scalar}", "{a: b}", "score.model.model is missing\n  score.model.a isn't a setting"),
    ],
)
def test_a_mistake_in_a_recipe_is_told_with_its_place(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert RECIPE.count(before) == 1
    assert message in refusal(tmp_path, RECIPE.replace(before, after))


def test_all_mistakes_of_a_recipe_are_told(tmp_path: Path) -> None:
    message = refusal(tmp_path, RECIPE.replace("turns: all", "turns: some").replace("where:", "wher:"))
    assert all(place in message for place in ("score.corpus.turns", "filter.wher isn't a setting"))


@pytest.mark.parametrize("text", ["[", "{? [1]: 2}", "a: !!python/object:os.system x", "\x00", b"\xff\xfe\xfa"], ids=repr)
def test_what_is_no_yaml_is_told_so(tmp_path: Path, text: str | bytes) -> None:
    assert "isn't valid YAML" in refusal(tmp_path, text)


@pytest.mark.parametrize("wrong", ["[", "b: c: d", "!!int x", "\x07", "*nothing"], ids=repr)
def test_what_is_no_yaml_is_told_with_its_file_and_line(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"first: 1\nsecond: {wrong}\n")
    with pytest.raises(SettingsError, match=r"the recipe .*mine\.yaml isn't valid YAML: line [23]"):
        read_recipe(str(path))
    with pytest.raises(SettingsError, match=r"the rubric .*mine\.yaml can't be read: line [23]"):
        validate(JudgeSettings, {"rubric": str(path)})
    with pytest.raises(SettingsError, match=r"mine\.yaml isn't valid YAML: line [23]"):
        _from_file(str(path), {})


def test_a_mistake_in_a_file_for_the_endpoint_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("modles: []\n")
    with pytest.raises(SettingsError, match=r"mine\.yaml: models is missing\n  modles isn't a setting"):
        _from_file(str(tmp_path / "mine.yaml"), {})


def test_a_key_that_stands_twice_is_refused_but_not_what_an_anchor_merges(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("score:\n  prefix: a_\n  output: out\n  prefix: b_\n")
    with pytest.raises(SettingsError, match="prefix is given twice, from line 2 on"):
        read_recipe(str(tmp_path / "r.yaml"))
    assert from_yaml("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  x: 3\n", "it")["b"] == {"x": 3, "y": 2}


def test_an_option_that_takes_one_value_is_refused_twice() -> None:
    given_values: list[dict[str, Any]] = []

    @click.command()
    @settings_options(ScoreSettings, "inputs", "output")
    def command(**options: Any) -> None:
        given_values.append(given_options(options))

    run = CliRunner().invoke
    for twice, message in (
        (["--limit", "3", "--limit", "4"], "--limit takes one value, and it is given 3 and 4"),
        (["--model", "other"], "--model takes one value, and it is given 'm' and 'other'"),
    ):
        done = run(command, ["--model", "m", *twice])
        assert (done.exit_code, message in done.output) == (2, True), done.output
    several = ["--response-column", "output_1", "--response-column", "output_2", "--limit", "3"]
    assert run(command, ["--model", "m", *several]).exit_code == 0
    assert given_values == [{"model": "m", "response_column": ("output_1", "output_2"), "limit": 3}]


def test_what_looks_like_a_date_is_text() -> None:
    assert from_yaml("{a: 2024-12-31, b: 2024-13-45, c: 3}", "it") == {"a": "2024-12-31", "b": "2024-13-45", "c": 3}


def test_a_recipe_is_a_mapping_and_asks_for_something(tmp_path: Path) -> None:
    for text in ("", "just text", "[]", "5"):
        assert re.search("the content .*: must be a mapping of names to values", refusal(tmp_path, text))
    assert "has no steps; it needs one or more of sample, refine" in refusal(tmp_path, "{}")


def test_a_recipe_in_a_store_is_read() -> None:
    """As `status` names it, of a folder there."""
    settings = FilterSettings(scored="memory://recipes/scored", output="memory://recipes/kept", where="reward > 1")
    write_recipe("memory://recipes/kept", filter=settings)
    path = read_recipe_path("memory://recipes/kept")
    assert path is not None
    assert read_recipe(path).steps == {"filter": settings}
    with pytest.raises(SettingsError, match=r"the recipe memory://recipes/none\.yaml can't be read: .*none\.yaml"):
        read_recipe("memory://recipes/none.yaml")


@pytest.mark.parametrize("rows", [[{"prompt": "p", "response": "r"}], pandas.DataFrame({"prompt": ["p"]})])
def test_rows_in_place_of_files_are_refused_with_what_takes_them(rows: Any) -> None:
    with pytest.raises(SettingsError, match=r"inputs: no files; give rows as ray\.data\.from_pandas"):
        build(ScoreSettings, {**NEEDED, "inputs": rows})
