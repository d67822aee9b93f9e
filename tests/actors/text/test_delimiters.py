"""Delimiters are found in every spelling that a reader takes for them, in linear time."""

import sys
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.text.delimiters import Delimiters

END = "[The End of Response 1]"
EVERY_CHARACTER = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
"""But the surrogates, which are no characters."""


def is_unseen(character: str) -> bool:
    by_category = unicodedata.category(character) in ("Cc", "Cf", "Me", "Mn") or unicodedata.combining(character) > 0
    return by_category or character.isspace() or character in "\u115f\u1160\u2800\u3164"


def as_read(text: str) -> str:
    """As `Delimiters` compares texts, with the marks removed after their order was settled, which takes quadratic time."""
    return "".join(character for character in unicodedata.normalize("NFKD", text) if not is_unseen(character)).casefold()


def test_no_character_that_isnt_seen_hides_a_delimiter() -> None:
    delimiters = Delimiters([END])
    unseen = list(filter(is_unseen, EVERY_CHARACTER))
    assert {"\U0001d173", "\U0001bca0", "\U0001e8d0", "\U000e0041", "\u0345"} < set(unseen)
    hiding = [character for character in unseen if not delimiters.are_in(END.replace(" of", f"{character} of"))]
    assert hiding == []


@given(
    st.text(st.sampled_from("Aﬁé[İßｶ\uff9e\u00a8\u212b\ud55c"), min_size=1, max_size=5),
    st.lists(st.text(st.sampled_from(" \u0301\u0316\u05b0\u0f73\u200b\U0001d165\U0001d173aé"), max_size=4), min_size=6),
)
def test_a_text_is_read_as_if_its_marks_were_removed_last(letters: str, marks: list[str]) -> None:
    marked = "[" + "".join(letter + mark for letter, mark in zip(letters, marks, strict=False))
    bare, composed = "[" + letters, unicodedata.normalize("NFC", marked)
    for delimiter, text in ((bare, marked), (marked, bare), (marked, composed)):
        assert Delimiters([delimiter]).are_in(text) is (as_read(delimiter) in as_read(text))


def test_marks_are_removed_before_their_order_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting 20,000 of them takes `normalize` seconds, in which nothing else in the process runs."""
    normalised: list[str] = []
    normalize = unicodedata.normalize

    def record(form: Literal["NFKD"], text: str) -> str:
        normalised.append(text)
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", record)
    delimiters = Delimiters([END])
    normalised.clear()
    assert delimiters.are_in("".join(EVERY_CHARACTER) + END)
    assert not any(unicodedata.combining(character) for text in normalised for character in text)
    # A character that isn't a mark begins a new run of them, unless its compatible form is nothing but marks.
    alone = {
        unicodedata.combining(mark)
        for character in set("".join(normalised))
        if unicodedata.combining((marks := normalize("NFKD", character))[0])
        for mark in marks
    }
    assert len(alone) <= 1, "those of one class stay in the order that they have"
