"""What isn't ours is shown as it is, in each place, and does nothing there."""

import unicodedata
from itertools import product

import pytest

from actors.text.visible import code, latex, line, markdown, markdown_table, visible

EVIL = "a\n| x |\r\x1b[31m\x9b\u202e\ud800\u2028\x00<b>`[l](u)`\\|&#*_~%${}^"


def test_line_breaks_stay_only_where_texts_have_several_lines() -> None:
    assert visible("a\tb\nc\rd\x1be") == "a\tb\nc⟨U+000D⟩d⟨U+001B⟩e"
    assert line("a\tb\nc\rd\x1be") == "a⟨U+0009⟩b⟨U+000A⟩c⟨U+000D⟩d⟨U+001B⟩e"
    assert line("\u202e\ud800\x85") == "⟨U+202E⟩⟨U+D800⟩⟨U+0085⟩"


@pytest.mark.parametrize("show", [line, markdown, latex])
def test_nothing_acts_or_hides(show: object) -> None:
    assert callable(show)
    shown = show(EVIL)
    assert shown.isprintable()
    assert len(shown.splitlines()) == 1
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown)


def test_a_cell_of_markdown_is_one_cell() -> None:
    heading, dashes, cells = markdown_table(["a|b", EVIL], [["\\|", "\\"]])
    assert dashes == "|---|---|"
    assert cells == r"| \\\| | \\ |"
    assert markdown_table(["$x$"], [["$`x`$"], ["5$"]]) == [r"| \$x\$ |", "|---|", r"| \$\`x\`\$ |", r"| 5\$ |"]
    assert heading.startswith(r"| a\|b | a⟨U+000A⟩\| x \|")
    assert r"\<b\>\`\[l\](u)\`" in heading


def test_code_of_markdown_ends_where_it_says() -> None:
    assert code("a_$b$") == "`a_$b$`"
    assert (code("`a`"), code("a``b\n")) == ("`` `a` ``", "``` a``b⟨U+000A⟩ ```")


def test_latex_has_no_special_character_of_others() -> None:
    assert latex(r"a_b & 5% #1 $x^2~{\y}") == r"a\_b \& 5\% \#1 \$x\textasciicircum{}2\textasciitilde{}\{\textbackslash{}y\}"
    assert latex("\x1b\u202e") == r"$\langle$U+001B$\rangle$$\langle$U+202E$\rangle$"


def test_names_that_differ_are_shown_differently() -> None:
    names = ["".join(parts) for parts in product("a\n\x00\u202e", repeat=3)]
    assert len(set(map(line, names))) == len(set(map(markdown, names))) == len(set(map(latex, names))) == len(names)
