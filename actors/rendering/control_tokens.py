"""The control tokens of a model, which structure its chat template, and finding them inside a row's texts."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from actors.errors import Rejected
from actors.records import Reason


class ControlTokenFilter:
    """Finds the control tokens of a tokenizer, of its template and of a family, in texts and in ids."""

    def __init__(self, tokenizer: Any, texts: Collection[str], ids: Iterable[int]) -> None:
        """`texts` and `ids` are the family's control tokens, in addition to the tokenizer's."""
        candidates = {*_texts_of(tokenizer), *texts}
        vocabulary = tokenizer.get_vocab()
        self.texts = {text for text in candidates if text.strip()}  # added runs of spaces are text like any other
        self._pattern = re.compile(_pattern_for_any(self.texts))
        # The first character of every match, overlapping ones included: a lookahead consumes nothing but that character.
        self._break = re.compile(f"(?=(?:{self._pattern.pattern}))(?s:.)")
        # Not the unknown token, which ordinary text may contain.
        self._ids = {*(vocabulary[text] for text in self.texts if text in vocabulary), *ids} - {tokenizer.unk_token_id}

    def are_in(self, text: str) -> bool:
        """Whether a text contains a control token."""
        return self._pattern.search(text) is not None

    def neutralised(self, text: str) -> str:
        """The text with a space after the first character of each control token. Raises `Rejected` if one is left."""
        broken = self._break.sub(r"\g<0> ", text)
        if self.are_in(broken):
            raise Rejected(Reason.CONTROL_TOKEN)
        return broken

    def count(self, ids: Sequence[int]) -> int:
        """How many of the ids are control tokens."""
        return sum(map(self._ids.__contains__, ids))


def _texts_of(tokenizer: Any) -> set[str]:
    """A tokenizer's special tokens, and those of its added tokens that occur in its template."""
    template = str(tokenizer.chat_template or "")
    added = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
    return {text for text, special in added.items() if special or text in template} | {*tokenizer.all_special_tokens}


def _pattern_for_any(texts: set[str]) -> str:
    """A pattern for any of the texts, the longest first: else `<a>` would match where `<a>b` stands. None: never matches."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"
