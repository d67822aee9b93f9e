"""The reference is of the code: whatever there is of it is on its page, under its own name."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from fastapi.routing import APIRoute

from actors.errors import AssayError
from actors.records import Reason, Status
from actors.reward_model import families
from deploy import api
from docs import generate
from docs.generate.command_line import commands, page_of
from docs.generate.exit_codes import MEANINGS, ending_errors, exit_code
from docs.generate.markdown import Page, code, document, paragraphs, table, text
from docs.generate.outcomes import REASONS, STATUSES
from docs.generate.python_api import functions
from docs.generate.write import write
from pipelines.cli import app
from pipelines.cli.grouped_help import settable, setting_form
from pipelines.data.formats import PROMPT_SHAPES, SHAPES
from pipelines.results.exports.trainer_messages import Refusal
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.settings.options import leaves
from pipelines.settings.run_settings import RowSettings
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def reference() -> Mapping[str, str]:
    return {page.path: page.markdown for page in generate.pages()}


def test_every_command_is_on_its_page_with_every_option(reference: Mapping[str, str]) -> None:
    index = reference["command-line/index.md"]
    for words, command in commands().items():
        page = reference[page_of(words)]
        assert f"`assay {words}`" in index
        assert page.startswith(f"# assay {words}\n")
        for parameter in command.params:
            shown = parameter.opts if isinstance(parameter, click.Option) else [(parameter.name or "").upper()]
            assert all(name in page for name in shown), parameter.name
        assert all(
            f"| `{setting_form(leaf).partition('=')[0]}` |" in page
            for leaf in settable(command.params)
            if not leaf.is_option
        )
    assert {"score", "models explain", "serve", "submit"} <= commands().keys()


def test_an_option_has_its_type_its_default_and_its_help(reference: Mapping[str, str]) -> None:
    score, keep = reference["command-line/score.md"], reference["command-line/filter.md"]
    help_text = next(text(leaf.about) for leaf in leaves(RowSettings) if leaf.name == "turns")
    assert f"| `corpus.turns` | `final`, `all`, `final-answer` | `final` | {help_text} |" in score
    assert "| `--tensor-parallel` | integer | `1` |" in score
    assert "| `--overwrite` | flag |  |" in score
    assert "| `--response-column` | text, repeatable |" in score
    assert "| `--model` | text | required |" in score
    assert "| `fields` | `true`, `false` | `true` |" in keep
    assert all(name in reference["command-line/pairs.md"] for name in ("there are ", *PAIR_FORMATS))


def test_every_family_is_there_with_its_models(reference: Mapping[str, str]) -> None:
    page = reference["reward-models.md"]
    for family in families().values():
        assert f"## `{family.name}`" in page
        assert all(f"| `{model.id}` |" in page for model in family.models)


def test_every_shape_and_every_trainer_format_is_there(reference: Mapping[str, str]) -> None:
    shapes, formats = reference["input-shapes.md"], reference["trainer-formats.md"]
    assert all(f"## `{name}`" in shapes for name in SHAPES)
    assert all(f"| `{name}` |" in shapes for name in PROMPT_SHAPES)
    assert all(f"| `{name}` |" in formats for name in (*PAIR_FORMATS, *RESPONSE_FORMATS, *Refusal))


def test_every_route_is_there(reference: Mapping[str, str]) -> None:
    routes = [route for router in api.ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    named = [(method, route.path.replace(":path", "")) for route in routes for method in route.methods]
    assert all(f"## `{method} {path}`" in reference["http.md"] for method, path in named)
    assert ("POST", "/v1/rewards") in named


def test_every_status_and_every_reason_is_there(reference: Mapping[str, str]) -> None:
    assert STATUSES.keys() == set(Status)
    assert REASONS.keys() == set(Reason)
    assert {meaning.status for meaning in REASONS.values()} == {Status.REJECTED, Status.FAILED}
    assert all(f"| `{name}` |" in reference["outcomes.md"] for name in (*Status, *Reason))


def test_what_a_scored_corpus_holds_is_there(reference: Mapping[str, str]) -> None:
    page = reference["scored-corpus.md"]
    assert "| `reward` | `double` | yes |" in page
    assert "| `trace` | `list<" in page
    assert all(f"| `{key}` |" in page for key in ("identity", "judge", "fingerprint", "model_runner", "quantiles"))
    assert all(f"| `{key}` |" in page for key in ("retries", "summary_of", "sampling", "refining", "agreement"))


def test_all_that_python_users_call_is_there(reference: Mapping[str, str]) -> None:
    page = reference["python.md"]
    assert all(f"## `{name}`" in page for name in functions())
    assert all(map(inspect.isfunction, functions().values()))
    assert "score(inputs: Dataset, *, model: str, **options: Any) -> Dataset" in page
    assert "score(inputs: str | Sequence[str], output: str, *, model: str, **options: Any) -> Summary" in page


@pytest.mark.parametrize("error", list(ending_errors()), ids=lambda error: error.__name__)
def test_an_error_ends_a_command_as_its_page_says(error: type[AssayError], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise error("x")

    monkeypatch.setattr(app, "cli", fail)
    with pytest.raises(SystemExit) as end:
        app._run()
    assert end.value.code == exit_code(error)
    assert exit_code(error) in MEANINGS


def test_nothing_of_this_machine_is_in_the_reference(reference: Mapping[str, str]) -> None:
    assert not [path for path, page in reference.items() if re.search(r"/tmp/|/home/|/root/|<function|0x[0-9a-f]{6}", page)]
    assert not [path for path, page in reference.items() if str(REPOSITORY) in page]


def test_words_of_the_code_are_never_markup() -> None:
    assert text("a `b|c` <think> *d* [e] f_g |h|") == "a `b|c` &lt;think&gt; \\*d\\* \\[e\\] f\\_g \\|h\\|"
    assert code("a`b") == "`` a`b ``"
    assert code("") == ""
    assert table(("a",), []) == ""
    assert paragraphs("One\nline.\n\n    code *here*\n      deeper") == "One line.\n\n```text\ncode *here*\n  deeper\n```"
    assert document("a", "", "b") == "a\n\nb\n"


def test_a_page_that_is_gone_is_deleted(tmp_path: Path) -> None:
    write([Page("a/b.md", "old"), Page("c.md", "kept")], tmp_path)
    before = (tmp_path / "c.md").stat().st_mtime_ns
    write([Page("c.md", "kept"), Page("d.md", "new")], tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*.md")) == ["c.md", "d.md"]
    assert (tmp_path / "c.md").stat().st_mtime_ns == before
