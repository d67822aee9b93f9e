"""Help by job and in groups, the shell's completion, and readers of the output that have had enough."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from actors.engine.engine_arguments import OURS
from actors.errors import SettingsError
from actors.reward_model import families
from pipelines.cli.app import _Commands, cli
from pipelines.cli.grouped_help import settable, setting_form, shown_default
from pipelines.data.formats import formats, prompt_formats
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from tests.conftest import REPOSITORY
from tests.support.commands import assay

NAMES = cli.list_commands(click.Context(cli))
HEAVY = {"ray", "vllm", "torch", "transformers", "pyarrow", "duckdb", "fastapi"}


def show(*words: str, width: int = 80) -> str:
    done = CliRunner().invoke(cli, words, terminal_width=width)
    assert done.exit_code == 0, done.output
    return done.output


def command(name: str) -> click.Command:
    command_of_name = cli.get_command(click.Context(cli), name)
    assert command_of_name is not None
    return command_of_name


# --- assay --help ---------------------------------------------------------------------------------------------------


def test_every_command_has_its_job_and_a_whole_sentence() -> None:
    output = " ".join(show("--help").split())
    assert sorted(NAMES) == sorted([*cli.commands, *_Commands.ELSEWHERE])  # each is listed, and once
    assert output.count("...") == output.count("[ARGS]...")
    assert (
        "Score and filter: score Score the corpus INPUTS (files, globs, folders) and write the scores to the folder"
        in output
    )
    assert "models List the reward models that Assay knows. evaluate" in output


def test_the_version_is_that_of_the_package() -> None:
    done = assay("--version")
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert (done.returncode, done.stdout, done.stderr) == (0, f"assay {declared}\n", "")


# --- assay COMMAND --help -------------------------------------------------------------------------------------------


def test_help_shows_what_has_an_option_and_where_the_settings_are() -> None:
    output = show("score", "--help")
    assert len(output.splitlines()) < 102
    for flag in ("--model", "--format", "--prompt-column", "--limit", "--tensor-parallel", "--overwrite", "--set", "--json"):
        assert f"\n  {flag} " in output
    assert "part_rows" not in output
    assert output.index("--model ") < output.index("--format ")  # what is required comes first
    assert "INPUTS...  input files, glob patterns and folders" in output
    assert "e.g. corpus.system_column=...; --help-all lists all" in show("score", "--help", width=10_000)


@pytest.mark.parametrize("name", NAMES)
def test_help_all_shows_every_option_and_every_setting_once(name: str) -> None:
    parameters = command(name).params
    settings = [leaf for leaf in settable(parameters) if not leaf.is_option]
    lines = show(name, "--help-all" if settings else "--help", width=10_000).splitlines()
    starts = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    options = [parameter.opts[0] for parameter in parameters if isinstance(parameter, click.Option)]
    # A command that another test has called by itself keeps the option of that call, without -h.
    assert sorted(starts) in (sorted([*options, "-h"]), sorted([*options, "--help"]))
    words = " ".join(" ".join(lines).split())
    for leaf in settings:
        default = f" [default: {shown_default(leaf)}]" if shown_default(leaf) else ""
        assert words.count(f" {setting_form(leaf)} {leaf.about}{default}") == 1


@pytest.mark.parametrize("name", NAMES)
def test_help_is_short_and_points_to_the_rest(name: str) -> None:
    parameters = command(name).params
    assert len([parameter for parameter in parameters if isinstance(parameter, click.Option)]) <= 30
    assert ("--help-all lists all" in show(name, "--help", width=10_000)) is bool(settable(parameters))


def test_a_section_says_what_it_is_about_and_others_come_last() -> None:
    output = show("sample", "--help-all", width=10_000)
    headings = [line for line in output.splitlines() if line.startswith("--set, ")]
    assert "--set, judge: how a judge that writes is asked, and what its judgements become:" in headings
    assert "--set, policy_engine: how the policy's engines are started:" in headings
    assert headings[-1] == "--set, others:"


def test_a_setting_says_what_it_takes() -> None:
    output = show("sample", "--help-all", width=10_000)
    for form in (
        "corpus.turns=final|all|final-answer",
        "judge.trace=true|false",
        "work.part_rows=INTEGER",
        "judge.temperature=NUMBER",
        "model.weights.NAME=VALUE",
        "policy.policy_stop=[A, B]",
        "prefix=TEXT",
    ):
        assert re.search(rf"^  {re.escape(form)}(?= |$)", output, re.MULTILINE)


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
    for command_name, option, names in LISTED:
        lines = show(command_name, "--help", width=10_000).splitlines()
        (line,) = [line for line in lines if line.strip().startswith(f"{option} ")]
        assert line.endswith(f"; there are {', '.join(sorted(names))}")


def test_engine_args_names_what_is_refused_and_where_the_others_are_explained() -> None:
    lines = show("score", "--help-all", width=10_000).splitlines()
    (line,) = [line for line in lines if line.startswith("  engine.engine_args.NAME=VALUE ")]
    assert "https://docs.vllm.ai" in line
    assert line.endswith(f"refused, because other settings decide them: {', '.join(sorted(OURS))}")


@pytest.mark.parametrize(("name", "judge"), [("sample", "--judge"), ("refine", "--select")])
def test_a_policy_is_needed_and_no_responses_of_rows_are_taken(name: str, judge: str) -> None:
    output = show(name, "--help", width=10_000)
    (policy,) = [line for line in output.splitlines() if line.strip().startswith("--policy ")]
    assert policy.endswith("[required]")
    assert "--response-column" not in show(name, "--help-all", width=10_000)
    done = CliRunner().invoke(cli, [name, "prompts.jsonl", "out", judge, "tiny-attributes", "--limit", "0"])
    assert isinstance(done.exception, SettingsError)
    assert str(done.exception) == (
        "--limit 0: must be at least 1\n  --policy is missing; it writes the answers; `assay score` judges those that the "
        "rows hold, and `assay choose` keeps the best"
    )


def test_export_has_no_settings_of_pairs() -> None:
    names = {leaf.name for leaf in settable(command("export").params)}
    assert names
    assert not names & {"per", "spill", "pairs", "min_margin", "length_balanced", "labels", "pair_seed"}


def test_quick_commands_load_nothing_heavy() -> None:
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom pipelines.cli.app import cli\n"
        "for words in ('--version', '--help', 'check --help', 'score --help', 'filter --help', 'choose --help-all',\n"
        "              'models', 'models explain nvidia/Llama-3.3-Nemotron-70B-Reward'):\n"
        "    result = CliRunner().invoke(cli, words.split())\n"
        "    assert result.exit_code == 0 and result.output, result\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


# --- completion -----------------------------------------------------------------------------------------------------


def completed(line: str) -> list[str]:
    """What bash gets for a line whose last word is being written: kind and value, as click's script asks for them."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "assay"],
        cwd=REPOSITORY,
        env={**os.environ, "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_ASSAY_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("assay ref", ["plain,refine"]),
        ("assay score --tensor", ["plain,--tensor-parallel"]),
        ("assay score --engine ", ["plain,vllm", "plain,fake", "plain,none"]),
        ("assay score --set work.part", ["plain,work.part_rows="]),
        ("assay score --model tiny-s", ["plain,tiny-scalar"]),
        ("assay sample p o --policy tiny-p", ["plain,tiny-policy", "plain,tiny-principle"]),
        ("assay score --family sca", ["plain,scalar"]),
        ("assay score --format share", ["plain,sharegpt", "plain,sharegpt-preference"]),
        ("assay pairs s o --for open-", ["plain,open-instruct"]),
        ("assay score data/", ["file,data/"]),
        ("assay run rec", ["file,rec"]),
        ("assay completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
    ],
)
def test_the_shell_completes(line: str, offers: list[str]) -> None:
    assert completed(line) == offers


def test_the_script_works_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "assay"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m assay "$@"\n')
    program.chmod(0o755)
    ask = 'eval "$(assay completion bash)"; COMP_WORDS=(assay sta); COMP_CWORD=1; _assay_completion assay; echo "$COMPREPLY"'
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ask], cwd=REPOSITORY, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "status\n"


# --- pipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [(["models"], ""), (["models"], "1"), (["--help"], ""), (["models", "explain", "tiny-scalar"], "")],
)
def test_a_reader_that_has_had_enough_ends_a_command_quietly(words: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "assay", *words],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_error_keeps_its_code_when_nobody_reads_it() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "assay", "status", "nowhere"]
    assert subprocess.run(command, cwd=REPOSITORY, stdout=writing, stderr=subprocess.DEVNULL, check=False).returncode == 2
    assert subprocess.run(command, cwd=REPOSITORY, stdout=writing, stderr=writing, check=False).returncode in (2, 141)
    os.close(writing)
