"""Reports show what users, models and endpoints wrote as it is, in lines and in tables."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from pipelines.cli.app import cli
from pipelines.cli.commands.explain import explained
from pipelines.cli.plain_console import show
from pipelines.data.formats import RowShape
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
    assert condition in run("choose", scored, tmp_path / "best", "--strategy", "best", "--where", condition)


@FOREIGN
def test_a_tables_title_is_shown_as_it_is(text: str, tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": "good", "rejected": "bad"}]
    scored = judged_corpus(tmp_path / "s", rows, [[2.0, 1.0]], RowShape("preference"), model=f"me-{text}")
    assert f"me-{text} on " in run("evaluate", scored)


EVIL = "x\n| forged | 100% |\x1b[2J\u202e\\end{tabular}<b>"


def test_names_of_a_corpus_write_no_line_and_no_code_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")  # nothing wraps
    rows = [{"prompt": f"p{index}", "chosen": "good", "rejected": "bad", "subset": EVIL} for index in range(3)]
    scored = judged_corpus(tmp_path / "s", rows, [[2.0, 1.0]] * 2 + [[2.0, None]], RowShape("preference"), model=EVIL)
    printed = run("evaluate", scored, "--out", tmp_path / "before", "--as", "pairs")
    worse = judged_corpus(tmp_path / "w", rows, [[1.0, 2.0]] * 3, RowShape("preference"), model=EVIL)
    against = ("--out", tmp_path / "now", "--as", "pairs", "--against", tmp_path / "before", "--junit", tmp_path / "j.xml")
    compared = CliRunner().invoke(cli, list(map(str, ("evaluate", worse, *against))))
    page = run("report", tmp_path / "before", "--out", tmp_path / "page.html") and (tmp_path / "page.html").read_text()
    markdown, tex = ((tmp_path / "before" / name).read_text() for name in ("table.md", "table.tex"))
    (case,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    texts = (printed, compared.output, markdown, tex, case.attrib["name"], case[0].attrib["message"])
    assert not any({"\x1b", "\u202e"}.intersection(text) for text in (*texts, page))
    assert not any(part.strip(" %").startswith("| forged") for text in texts for part in text.splitlines())
    assert [part for part in tex.splitlines() if not part.startswith("%")].count(r"\end{tabular}") == 1
    assert "forged" not in "".join(part for part in tex.splitlines() if part.startswith("\\"))
    assert r"x⟨U+000A⟩\| forged \| 100% \|⟨U+001B⟩\[2J⟨U+202E⟩\\end{tabular}\<b\>" in markdown


@FOREIGN
def test_a_tables_cell_is_shown_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show([explained({"model": f"me/{text}"})])
    assert f"me/{text}" in capsys.readouterr().out
