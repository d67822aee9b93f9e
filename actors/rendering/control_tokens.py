"""The control tokens of a model: what speaks for the chat template, and what becomes of it inside somebody's text."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from actors.errors import Rejected
from actors.records import Reason


class ControlTokenFilter:
    """Those of a tokenizer, of its template, and of the family that asks with them."""

    def __init__(self, tokenizer: Any, texts: Collection[str], ids: Iterable[int]) -> None:
        """`texts` and `ids` are the family's own, beside those that the tokenizer tells."""
        candidates = {*_texts_of(tokenizer), *texts}
        vocabulary = tokenizer.get_vocab()
        self.texts = {text for text in candidates if text.strip()}  # added runs of spaces are text like any other
        self._pattern = re.compile(_pattern_for_any(self.texts))
        self._break = re.compile(f"(?=(?:{self._pattern.pattern}))(?s:.)")
        # The unknown token isn't one: it stands for ordinary text.
        self._ids = {*(vocabulary[text] for text in self.texts if text in vocabulary), *ids} - {tokenizer.unk_token_id}

    def are_in(self, text: str) -> bool:
        """Whether a text holds one."""
        return self._pattern.search(text) is not None

    def neutralised(self, text: str) -> str:
        """A space after its first character breaks a control token up. Raises `Rejected` if one is left."""
        broken = self._break.sub(r"\g<0> ", text)
        if self.are_in(broken):
            raise Rejected(Reason.CONTROL_TOKEN)
        return broken

    def count(self, ids: Sequence[int]) -> int:
        """How many of the ids are one."""
        return sum(map(self._ids.__contains__, ids))


def _texts_of(tokenizer: Any) -> set[str]:
    """Its special tokens, and added ones that its template writes."""
    template = str(tokenizer.chat_template or "")
    added = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
    return {text for text, special in added.items() if special or text in template} | {*tokenizer.all_special_tokens}


def _pattern_for_any(texts: set[str]) -> str:
    """A pattern for any of the texts; the longest first, so that a token isn't taken for its own prefix."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"
