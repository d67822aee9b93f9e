"""The control tokens of a model, which structure its chat template, and finding them inside a row's texts."""

import re
from collections.abc import Collection, Iterable, Sequence

from actors.rendering.model_tokenizer import ModelTokenizer


class ControlTokenFilter:
    """Finds the control tokens of a tokenizer, of its template and of a family, in texts and in ids."""

    def __init__(self, tokenizer: ModelTokenizer, texts: Collection[str], ids: Iterable[int]) -> None:
        """`texts` and `ids` are the family's control tokens, in addition to the tokenizer's."""
        pretrained = tokenizer.pretrained
        added, template = pretrained.added_tokens_decoder.values(), str(pretrained.chat_template or "")
        special = {token.content for token in added if token.special} | {*pretrained.all_special_tokens}
        of_template = {token.content for token in added if token.content in template}
        # Added runs of spaces, as Gemma's tokenizer has them, are text like any other.
        self.texts = {text for text in special | of_template | {*texts} if text.strip()}
        # Of these, what is ordinary to the tokenizer and the family, and stands in the chat template: `<think>`, mostly.
        self.template_texts = of_template - special - {*texts}
        # The longest first: else `<a>` would match where `<a>b` stands. Without any, a pattern that never matches.
        longest_first = sorted(self.texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        # Not the unknown token, which ordinary text may contain.
        self._ids = {*tokenizer.known_ids(self.texts).values(), *ids} - {pretrained.unk_token_id}

    def are_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def count(self, ids: Sequence[int]) -> int:
        return sum(map(self._ids.__contains__, ids))
