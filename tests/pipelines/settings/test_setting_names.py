"""Who writes Python or YAML reads the names of settings, and no flags."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import pipelines
from actors.errors import SettingsError
from pipelines.cli.app import cli
from pipelines.settings.setting_names import setting_names, with_setting_names


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ("--max-model-len 99 is too much; give --prompt-column.", "`max_model_len` 99 is too much; give `prompt_column`."),
        ("--for nobody is no format", "`trainer` nobody is no format"),
        ("give --set render.reasoning=strip, or --set x.y=1", "give `reasoning`=strip, or --set x.y=1"),
        ("-k 3 goes with --keep top-k", "`k` 3 goes with `keep` top-k"),
        ("run `assay report s --out r.html`", "run `assay report s --out r.html`"),
        ("--data.prompt_key and --out and a-k and -x are others'", "--data.prompt_key and --out and a-k and -x are others'"),
    ],
)
def test_flags_of_settings_become_their_names(message: str, read: str) -> None:
    assert with_setting_names(message) == read


def test_an_error_keeps_its_kind_and_its_cause() -> None:
    cause = ValueError("x")
    with pytest.raises(SettingsError, match=r"^`replicas` is wrong$") as caught, setting_names():
        raise SettingsError("--replicas is wrong") from cause
    assert caught.value.__cause__ is cause


def test_python_calls_name_settings(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"^`replicas` is a number that stays, and `min_replicas` and `max_replicas` one"
    ):
        pipelines.score("c", str(tmp_path), model="m", replicas=1, max_replicas=2)
    with pytest.raises(SettingsError, match="give `keep`, `top_fraction`, `quantile` or `top_k`"):
        pipelines.keep(str(tmp_path), None, None)  # type: ignore[call-overload]
    with pytest.raises(SettingsError, match="`trainer` nobody is no format of pairs"):
        pipelines.pairs("scored", str(tmp_path), "nobody")


def test_recipes_name_settings(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("pairs: {scored: s, output: o, trainer: nobody}\n")
    assert "`trainer` nobody is no format of pairs" in str(CliRunner().invoke(cli, ["run", str(recipe)]).exception)
    recipe.write_text("score: {inputs: c, output: o, model: m, replicas: 1, max_replicas: 2}\n")
    assert "score.work: `replicas` is a number" in str(CliRunner().invoke(cli, ["run", str(recipe)]).exception)


def test_the_command_line_names_flags() -> None:
    found = CliRunner().invoke(cli, ["pairs", "s", "o", "--for", "nobody"])
    assert "--for nobody is no format of pairs" in str(found.exception)
