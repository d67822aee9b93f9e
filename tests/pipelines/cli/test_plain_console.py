"""Reports show what users, models and endpoints wrote as it is, in lines and in tables."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli.app import cli
from pipelines.cli.commands.explain import show_explained
from pipelines.formats import RowShape
from tests.support.candidates import judged_corpus

FOREIGN = pytest.mark.parametrize("text", ["[/INST]", "[b]", ":ok:"], ids=["closes a style", "opens a style", "an emoji"])
"""What rich would refuse, leave out and replace."""


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@FOREIGN
def test_a_condition_is_shown_as_it_was_given(text: str, tmp_path: Path) -> None:
    rows = [{"prompt": "p", "responses": ["good", "bad"]}]
    scored = judged_corpus(tmp_path / "s", rows, [[2.0, 1.0]], RowShape("prompt-responses"), texts=("good", "bad"))
    condition = f"response_text not like '%{text}%'"
    assert condition in run("choose", scored, tmp_path / "best", "--keep", "best", "--where", condition)


@FOREIGN
def test_a_tables_title_is_shown_as_it_is(text: str, tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": "good", "rejected": "bad"}]
    scored = judged_corpus(tmp_path / "s", rows, [[2.0, 1.0]], RowShape("preference"), model=f"me/{text}")
    assert f"me/{text} on " in run("evaluate", scored)


@FOREIGN
def test_a_tables_cell_is_shown_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_explained({"model": f"me/{text}"})
    assert f"me/{text}" in capsys.readouterr().out
