"""The control tokens of a model, which structure its chat template, and finding them inside a row's texts."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from actors.rendering.model_tokenizer import ModelTokenizer


class ControlTokenFilter:
    """Finds the control tokens of a tokenizer, of its template and of a family, in texts and in ids."""

    def __init__(self, tokenizer: ModelTokenizer, texts: Collection[str], ids: Iterable[int]) -> None:
        """`texts` and `ids` are the family's control tokens, in addition to the tokenizer's."""
        special, of_template = _special_texts(tokenizer.pretrained), _template_texts(tokenizer.pretrained)
        # Added runs of spaces, as Gemma's tokenizer has them, are text like any other.
        self.texts = {text for text in special | of_template | {*texts} if text.strip()}
        # Of these, what is ordinary to the tokenizer and the family, and stands in the chat template: `<think>`, mostly.
        self.template_texts = of_template - special - {*texts}
        self._pattern = re.compile(_pattern_for_any(self.texts))
        # Not the unknown token, which ordinary text may contain.
        self._ids = {*tokenizer.known_ids(self.texts).values(), *ids} - {tokenizer.pretrained.unk_token_id}

    def are_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def count(self, ids: Sequence[int]) -> int:
        return sum(map(self._ids.__contains__, ids))


def _special_texts(tokenizer: Any) -> set[str]:
    added = tokenizer.added_tokens_decoder.values()
    return {token.content for token in added if token.special} | {*tokenizer.all_special_tokens}


def _template_texts(tokenizer: Any) -> set[str]:
    template = str(tokenizer.chat_template or "")
    return {token.content for token in tokenizer.added_tokens_decoder.values() if token.content in template}


def _pattern_for_any(texts: set[str]) -> str:
    # A pattern for any of the texts, the longest first: else `<a>` would match where `<a>b` stands. None: never matches.
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"
