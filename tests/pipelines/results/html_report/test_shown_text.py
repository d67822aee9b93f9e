"""Text as the page shows it: nothing in it is hidden, or reaches beyond it."""

import pytest

from pipelines.results.html_report.shown_text import show


def test_what_acts_or_hides_is_made_visible_and_what_is_written_stays() -> None:
    cases: list[tuple[str, str]] = [
        ("tab\tand\nline\r\nstay", "tab\tand\nline\nstay"),
        ("a\x00b\x1b[31m\x9b", "a⟨U+0000⟩b⟨U+001B⟩[31m⟨U+009B⟩"),
        ("\u202eevil\u2066", "⟨U+202E⟩evil⟨U+2066⟩"),
        ("hid\U000e0068\U000e0069den", "hid⟨U+E0068⟩⟨U+E0069⟩den"),
        (
            "soft\u00adhyphen, word\u2060joiner, variant\U000e0100",
            "soft⟨U+00AD⟩hyphen, word⟨U+2060⟩joiner, variant⟨U+E0100⟩",
        ),
        ("👩\u200d💻 ❤\ufe0f می\u200cخواهم", "👩\u200d💻 ❤\ufe0f می\u200cخواهم"),
    ]
    for text, shown in cases:
        assert show(text, 100) == shown


def test_a_cut_text_says_its_length() -> None:
    assert show("abcdef", 3) == "abc … [cut: 6 characters in all]"


@pytest.mark.parametrize("text", ["\x9b" * 3, "\U000e0041" * 20])
def test_the_limit_is_of_what_is_shown_so_that_no_text_makes_a_page_large(text: str) -> None:
    shown = show(text, 20)
    assert shown.endswith(f" … [cut: {len(text)} characters in all]")
    assert len(shown.split(" … ")[0]) == 20
