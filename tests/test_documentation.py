"""README.md and docs/ say what is there: their commands and recipes are read as a user's are, and links lead somewhere.

No engine starts here. That the commands work is tested where `RUN_BY` says.
"""

import ast
import importlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from actors.errors import SettingsError
from actors.reward_model import families
from actors.settings.base import Settings
from actors.settings.rubric import RubricSettings
from deploy import api
from docs.generate.python_api import functions
from pipelines.cli.app import cli
from pipelines.cli.flags import given_options
from pipelines.cli.grouped_help import settable
from pipelines.data.formats import SHAPES
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.settings.certify_settings import CertifySettings
from pipelines.settings.diff_settings import DiffSettings
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.filter_settings import FilterSettings, LabelSampleSettings
from pipelines.settings.hub_settings import UploadSettings
from pipelines.settings.options import build, validate
from pipelines.settings.recipe import Recipe
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings
from pipelines.settings.run_settings import SampleSettings, ScoreSettings
from tests.conftest import REPOSITORY
from tests.support.pages import DOCS, GENERATED, anchors, blocks, commands, inline, links, pages, words_of

LANGUAGES = {"sh", "console", "text", "toml", "yaml", "python"}
COMMANDS = list(commands())

RUN_BY = {
    "score": "tests/end_to_end/test_command_line.py",
    "filter": "tests/end_to_end/test_real_engine.py",
    "ensemble": "tests/pipelines/workflows/ensembles/test_score_ensemble.py",
    "cascade": "tests/pipelines/workflows/cascades/test_score_cascade.py",
    "label-sample": "tests/pipelines/results/filtering/test_labels.py",
    "run": "tests/end_to_end/test_long_work.py",
    "report": "tests/pipelines/results/html_report/test_page_in_browser.py",
    "diff": "tests/pipelines/results/comparison/test_diff_command.py",
    "upload": "tests/pipelines/results/hub/test_upload.py",
    "status": "tests/first_hour/test_first_hour.py",
    "models": "tests/end_to_end/test_command_line.py",
    "check": "tests/end_to_end/test_command_line.py",
    "sample": "tests/end_to_end/test_best_of_n.py",
    "refine": "tests/end_to_end/test_best_of_n.py",
    "choose": "tests/pipelines/results/exports/test_exporting.py",
    "pairs": "tests/pipelines/results/exports/test_exporting.py",
    "export": "tests/pipelines/results/exports/test_exporting.py",
    "evaluate": "tests/pipelines/results/evaluation/test_evaluate_corpus.py",
    "certify": "tests/pipelines/workflows/certifying/test_certify_model.py",
    "plan": "tests/pipelines/workflows/estimate/test_forecast.py",
    "submit": "tests/end_to_end/test_job_submit.py",
    "serve": "tests/support/endpoints.py",
    "completion": "tests/pipelines/cli/test_help.py",
    "retry": "tests/pipelines/workflows/rescoring/test_retry_rows.py",
    "verify": "tests/pipelines/workflows/rescoring/test_verify_folder.py",
}
"""A test that runs each of the commands of `assay` that are shown."""

NOT_RUN = {
    "kubectl": "needs Kubernetes; tests/deploy/test_kuberay.py checks what is applied",
    "serve": "needs a cluster; tests/deploy/test_serve_deploy.py deploys such a file",
    "make": "is how tests are run; that the targets are there is checked here",
    "export": "the shell's",
    "eval": "the shell's; tests/deploy/ray_serve/test_haproxy.py runs the command in it",
    ".": "the shell's",
    "pip": "tests/packaging installs the wheel; docs/contributing/releasing.md says who tries it with nothing installed",
    "cat": "shows a file",
    "head": "shows the beginning of a file; tests/docs/test_recipes.py runs it",
}
"""Programs whose lines no test runs as they stand, and why."""

SETTINGS: dict[str, type[Settings]] = {
    "score": ScoreSettings,
    "filter": FilterSettings,
    "label-sample": LabelSampleSettings,
    "sample": SampleSettings,
    "refine": RefineSettings,
    "choose": ChooseSettings,
    "pairs": PairSettings,
    "export": ExportSettings,
    "diff": DiffSettings,
    "upload": UploadSettings,
    "retry": RetrySettings,
    "verify": VerifySettings,
    "certify": CertifySettings,
}
"""What a command's options are made into, where that is all they are."""

FUNCTIONS = {
    **{
        name: name
        for name in (
            "score",
            "ensemble",
            "cascade",
            "sample",
            "refine",
            "choose",
            "pairs",
            "export",
            "diff",
            "upload",
            "retry",
            "verify",
        )
    },
    "filter": "filter",
}
"""The commands whose options functions of `assay` take."""
FUNCTION_NAMES = set(functions())
PYTHON_ALONE = {"models", "of", "partitions"}

FOREIGN = {
    "--data.prompt_key": "OpenRLHF's",
    "--data.apply_chat_template": "OpenRLHF's",
    "--data.input_template": "OpenRLHF's",
    "--reward.remote_url": "OpenRLHF's",
    "--rm-type": "slime's",
    "--rm-url": "slime's",
    "--apply-chat-template": "slime's",
    "--custom-generate-function-path": "slime's",
    "--mask-offpolicy-in-partial-rollout": "slime's",
    "--group-rm": "slime's",
    "--label-key": "slime's",
    "--rollout-skip-special-tokens": "slime's",
}
"""Options in the text that aren't ours."""


def command_of(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The command of `assay` that these words ask for, and what it gets."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(click.Context(command), rest[0])
        assert inner is not None, f"there is no command {rest[0]}"
        command, rest = inner, rest[1:]
    return command, rest


def flags_of(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def all_flags() -> set[str]:
    names = [*cli.list_commands(click.Context(cli)), "models explain"]
    return {flag for name in names for flag in flags_of(command_of(name.split())[0])} | flags_of(cli)


# --- commands ------------------------------------------------------------------------------------------------------


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES, [
        block.place for block in blocks() if block.language not in LANGUAGES
    ]
    assert len(COMMANDS) > 60
    assert all(block.text.startswith("$ ") for block in blocks() if block.language == "console")


def test_every_command_shown_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (rubric,) = [block.text for block in blocks() if block.language == "yaml" and "shows:" in block.text]
    for name in ("mine.yaml", "rubric.yaml"):  # as the pages call it
        (tmp_path / name).write_text(rubric)
    (tmp_path / "rubrics").symlink_to(REPOSITORY / "rubrics")
    answer = "{{ sample.output_text }}"
    score = {"type": "score_model", "name": "g", "input": [{"role": "user", "content": answer}]}
    check = {"type": "string_check", "name": "g", "input": answer, "operation": "eq", "reference": "{{ item.answer }}"}
    for grader in (score, check):
        (tmp_path / f"{grader['type']}.json").write_text(json.dumps(grader))
    monkeypatch.chdir(tmp_path)
    for shown in COMMANDS:
        check_command(shown.words)


def check_command(words: Sequence[str]) -> None:
    match words:
        case ["assay", *rest] | ["python", "-m", "assay", *rest]:
            check_assay(rest)
        case ["ray", "job", "submit", "--working-dir", ".", "--", *rest]:
            check_command(rest)
        case ["python", "-c", code]:
            ast.parse(code)
        case ["python", "-m", module, *rest]:
            spec = importlib.util.find_spec(module)
            assert spec is not None, f"there is no module {module}"
            assert spec.origin is not None
            code = Path(spec.origin).read_text()
            assert [word for word in rest if word.startswith("--") and f'"{word}"' not in code] == []
        case ["make", target, *variables]:
            assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), f"no target {target}"
            assert all("=" in variable for variable in variables)
        case ["curl", "-s", address, *rest] | ["curl", address, *rest]:
            assert address.removeprefix("http://127.0.0.1:8000") in api.paths("POST")
            assert json.loads(rest[rest.index("-d") + 1])
        case ["serve", "run" | "deploy", what, *_]:
            assert what == "deploy.app:app" or (REPOSITORY / what).is_file()
        case [program, *_]:
            assert program in NOT_RUN, f"nothing tests `{' '.join(words)}`: test it here, or say why not in NOT_RUN"


def check_assay(words: Sequence[str]) -> None:
    """Read it as a user's, up to the settings; and somebody must run that command."""
    command, rest = command_of(words)
    parent = click.Context(cli, info_name="assay")
    with command.make_context(words[0], rest, parent=parent) as context:
        if settings := SETTINGS.get(words[0]):
            known = {name: value for name, value in context.params.items() if name != "as_json"}
            build(settings, given_options(known))
    assert f'"{words[0]}"' in (REPOSITORY / RUN_BY[words[0]]).read_text()


@pytest.mark.parametrize(
    "line",
    ["assay scroe a b", "assay score a b --model m --votez 3", "assay filter a --top-fraction 2", "brew install assay"],
)
def test_a_command_that_isnt_one_is_noticed(line: str) -> None:
    with pytest.raises((AssertionError, click.ClickException, SettingsError)):
        check_command(words_of(line))


def test_commands_and_options_in_the_text_are_there() -> None:
    for page in pages():
        known = all_flags() | FOREIGN.keys()
        for span in inline(page):
            flags = re.findall(r"(?<![\w-])(?:--[a-z][\w.-]*\w|-[a-z]\b)", span)
            words = words_of(span) if span.startswith("assay ") else ()
            if len(words) > 1 and not words[1].isupper():
                command, _ = command_of(words[1:2])
                assert set(flags) <= flags_of(command), span
            elif flags and span.startswith("-"):
                assert set(flags) <= known, span


# --- files and Python ----------------------------------------------------------------------------------------------


def test_every_recipe_and_rubric_is_one() -> None:
    for block in [block for block in blocks() if block.language == "yaml"]:
        document = yaml.safe_load(block.text)
        if document.keys() & Recipe.model_fields.keys():
            assert validate(Recipe, document).steps
        else:
            assert validate(RubricSettings, document)


def test_every_line_of_python_names_functions_and_options_that_are_there() -> None:
    for block in [block for block in blocks() if block.language == "python"]:
        tree = ast.parse(block.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "assay":
                assert {alias.name for alias in node.names} <= set(FUNCTION_NAMES)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTION_NAMES:
                assert {word.arg for word in node.keywords} <= options_of(node.func.id) | PYTHON_ALONE


def options_of(function: str) -> set[str]:
    """What a function takes by the names of its command."""
    if function not in FUNCTIONS:
        return set()
    command, _ = command_of([FUNCTIONS[function]])
    names = {str(parameter.name) for parameter in command.params} | {leaf.name for leaf in settable(command.params)}
    return names | {flag.lstrip("-").replace("-", "_") for flag in flags_of(command)}


# --- links, and what pages list ------------------------------------------------------------------------------------


def test_every_link_leads_somewhere() -> None:
    for page in pages():
        for link in links(page):
            if link.startswith(("https://", "../../actions/")):  # the latter is the badge's, relative to the page on GitHub
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if GENERATED in target.parents:
                continue
            assert target.is_file(), f"{link} leads nowhere"
            assert page.parent == REPOSITORY or DOCS in target.parents, f"{link} leads out of docs/, where the site ends"
            assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_index_and_readme_lead_to_every_page() -> None:
    written = {page for page in pages() if DOCS in page.parents and page.name != "index.md"}
    index = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    readme = {(REPOSITORY / link.partition("#")[0]).resolve() for link in links(REPOSITORY / "README.md")}
    assert written <= index
    assert {page for page in written if page.parent.name == "recipes"} | {DOCS / "index.md"} <= readme


def test_tables_name_all_that_there_is() -> None:
    shown = {
        name: (DOCS / "guides" / f"{name}.md").read_text() for name in ("score-and-filter", "training-exports", "serving")
    }
    assert [name for name in (*SHAPES, *families()) if f"`{name}`" not in shown["score-and-filter"]] == []
    assert [name for name in (*PAIR_FORMATS, *RESPONSE_FORMATS) if f"`{name}`" not in shown["training-exports"]] == []
    assert [path for path in api.paths("POST") if f"{path}`" not in shown["serving"]] == []


def test_the_package_map_is_that_of_the_contracts() -> None:
    (shown,) = [block.text for block in blocks() if block.text.startswith("deploy  ")]
    layers: dict[str, list[str]] = {}
    for name, layer in re.findall(r"^([\w.]*) *?(?: {2}(\w+(?: \| \w+)*))?(?: {2,}.*)?$", shown, re.MULTILINE):
        if name:
            layers[name] = []
        elif layer:
            layers[[*layers][-1]].append(layer)
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert layers == {contract["containers"][0]: contract["layers"] for contract in contracts if "containers" in contract}


def test_the_journey_has_the_types_of_the_code() -> None:
    (shown,) = [block.text for block in blocks() if block.text.startswith("bytes of an input file")]
    code = "".join(file.read_text() for folder in ("actors", "pipelines") for file in (REPOSITORY / folder).rglob("*.py"))
    types = re.findall(r"^([A-Z]\w+)  ", shown, re.MULTILINE)
    assert len(types) >= 7
    assert [name for name in types if not re.search(rf"^class {name}\b", code, re.MULTILINE)] == []
    assert [
        name for name in re.findall(r"\b(?:actors|pipelines)\.(?:\w+)", shown) if not importlib.util.find_spec(name)
    ] == []


def test_files_and_modules_named_in_the_text_are_there() -> None:
    packages = "actors|bench|deploy|examples|pipelines|tests|tiny_models"
    for page in pages():
        for span in inline(page):
            if re.fullmatch(rf"(?:{packages})/[\w./-]*", span):
                assert (REPOSITORY / span).exists(), f"{page.name}: {span}"
            if re.fullmatch(r"(?:tests|deploy|actors|pipelines)(?:\.\w+)+", span):
                assert importlib.util.find_spec(span.split(":")[0]), f"{page.name}: {span}"


def test_the_layout_arithmetic_shown_is_what_the_command_says() -> None:
    (block,) = [block for block in blocks() if block.text.startswith("$ assay plan --model nvidia/Nemotron-4-340B-Reward\n")]
    command, output = block.text.split("\n", 1)
    assert CliRunner().invoke(cli, words_of(command[2:])[1:]).output == output


def test_what_an_endpoint_says_of_its_routes_is_shown() -> None:
    (block,) = [block for block in blocks() if block.text.startswith("$ assay serve") and "POST " in block.text]
    for method in ("POST", "GET"):
        assert ", ".join(api.paths(method)) in block.text
