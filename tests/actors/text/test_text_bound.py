"""Characters refuse nothing that tokens would accept."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from actors.checkpoint.checkpoint_files import locate
from actors.text.text_bound import TextBound
from tests.support.examples import examples

TOKENIZERS = ["tiny-attributes", "tiny-genrm", "tiny-math-prm"]
"""One of each sort that is shipped: without a normalizer, with one, and trained on other texts."""


@cache
def tokenizer(model: str) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(locate(model))


@cache
def richest(model: str) -> list[str]:
    """The tokens with the most letters and digits: they cover the most text."""
    known = tokenizer(model)
    names = sorted(known.get_vocab(), key=lambda name: sum(letter.isascii() and letter.isalnum() for letter in name))
    return [known.decode([known.get_vocab()[name]]) for name in names[-20:]]


@pytest.mark.parametrize("model", TOKENIZERS)
def test_what_is_refused_has_too_many_tokens(model: str) -> None:
    pieces = st.sampled_from(
        [*richest(model), "a\u0301", "e\u0301\u0302", "\ufb01", "\uac00", " ", "\n", "---", "7", "Q", "\U0001f642"]
    )

    @examples(300)
    @given(st.lists(pieces, max_size=60).map("".join) | st.text(max_size=200), st.integers(1, 8))
    def holds(text: str, limit: int) -> None:
        if TextBound(tokenizer(model), limit).is_passed(text):
            assert len(tokenizer(model)(text, add_special_tokens=False)["input_ids"]) > limit

    holds()


@pytest.mark.parametrize("model", TOKENIZERS)
def test_just_as_much_as_tokens_can_hold_isnt_refused(model: str) -> None:
    longest = richest(model)[-1]
    held = sum(letter.isascii() and letter.isalnum() for letter in longest)
    assert not TextBound(tokenizer(model), 5).is_passed(longest * 5)
    assert TextBound(tokenizer(model), 5).is_passed("x" * (5 * held + 1))
    assert not TextBound(tokenizer(model), 5).is_passed("x\u0301" * (5 * held + 1) + " " * held)


@pytest.mark.parametrize(
    "change",
    [
        lambda rules: setattr(rules, "normalizer", normalizers.Replace("a", "")),
        lambda rules: setattr(rules, "normalizer", normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer()])),
        lambda rules: setattr(rules, "pre_tokenizer", pre_tokenizers.Split("a", "removed")),
        lambda rules: setattr(rules, "pre_tokenizer", pre_tokenizers.CharDelimiterSplit("a")),
        lambda rules: setattr(rules, "model", models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")),
    ],
    ids=["a replaced", "bert", "a removed", "a splits", "word pieces"],
)
def test_a_tokenizer_that_may_lose_letters_has_no_bound(change: Any) -> None:
    rules = Tokenizer.from_file(str(Path(locate("tiny-attributes")) / "tokenizer.json"))
    assert TextBound(PreTrainedTokenizerFast(tokenizer_object=rules), 1).is_passed("a" * 40)
    change(rules)
    assert not TextBound(PreTrainedTokenizerFast(tokenizer_object=rules), 1).is_passed("a" * 40)
