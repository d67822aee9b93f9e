"""Options that take the name of a file in a folder say in their help which there are."""

from click.testing import CliRunner

from actors.reward_model import families
from pipelines.cli.app import cli
from pipelines.data.formats import formats, prompt_formats
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS

LISTED = [
    ("score", "--format", formats()),
    ("plan", "--format", formats()),
    ("ensemble", "--format", formats()),
    ("refine", "--format", prompt_formats()),
    ("sample", "--format", prompt_formats()),
    ("score", "--family", families()),
    ("pairs", "--for", PAIR_FORMATS),
    ("export", "--for", RESPONSE_FORMATS),
]


def test_help_lists_what_an_option_takes() -> None:
    for command, option, names in LISTED:
        shown = CliRunner().invoke(cli, [command, "--help"], terminal_width=10_000).output
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(f"{option} ")]
        assert line.endswith(f"; there are {', '.join(sorted(names))}")


def test_a_format_of_files_is_no_shape_of_rows() -> None:
    shown = CliRunner().invoke(cli, ["filter", "--help"], terminal_width=10_000).output
    (line,) = [line for line in shown.splitlines() if line.strip().startswith("--format ")]
    assert "[jsonl|parquet]" in line
    assert "there are" not in line
