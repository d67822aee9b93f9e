"""Who writes Python or YAML reads the names of settings, and no flags."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import assay
from actors.errors import SettingsError
from pipelines.cli.app import cli
from pipelines.settings.setting_names import setting_names, with_setting_names


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ("--max-model-len 99 is too much; give --prompt-column.", "`max_model_len` 99 is too much; give `prompt_column`."),
        ("--for nobody is no format", "`trainer` nobody is no format"),
        ("give --set render.reasoning=strip, or --set x.y=1", "give `reasoning`=strip, or --set x.y=1"),
        ("-k 3 goes with --strategy top-k", "`k` 3 goes with `strategy` top-k"),
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


def test_python_and_recipes_name_settings_and_the_command_line_flags(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="`trainer` nobody is no format of pairs"):
        assay.pairs("scored", str(tmp_path), "nobody")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("score: {inputs: c, output: o, model: m, replicas: 1, max_replicas: 2}\n")
    for command, message in (
        (["run", str(recipe)], "score.work: `replicas` is a number"),
        (["pairs", "s", "o", "--for", "nobody"], "--for nobody is no format of pairs"),
    ):
        assert message in str(CliRunner().invoke(cli, command).exception)
