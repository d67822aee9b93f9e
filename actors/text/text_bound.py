"""Which texts are certainly too long for a model, by counting characters instead of tokenizing.

No text is refused that would fit. For byte-pair tokenizers whose rules certainly keep every ASCII letter and digit, a text
has at least (its letters and digits) / (the most of them in any single token) tokens. Spaces and punctuation don't count:
every large vocabulary has tokens for long runs of them, but none for long runs of letters.
"""

import json
import math
import re
import string
from collections.abc import Collection
from typing import Any

# Letters and digits that no normalisation can join with a combining mark, which would come next.
_KEPT = re.compile(r"[A-Za-z0-9]+(?=[\x00-\x7f]|$)")
_COUNTED = re.compile(r"[A-Za-z0-9]")
_ALPHABET = string.ascii_letters + string.digits
_NORMALIZERS = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Prepend", "ByteLevel"})
_SPLITTERS = frozenset({"ByteLevel", "Metaspace", "Digits"})


class TextBound:
    """The bound of one tokenizer, for prompts of at most `limit` tokens."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self.limit = limit
        vocabulary = tokenizer.get_vocab()  # of 262,144 tokens 0.2 s each time
        self._most_characters = limit * _most_characters_in_a_token(tokenizer, vocabulary)
        self._most_letters = limit * _most_letters_in_a_token(tokenizer, vocabulary)

    def is_passed(self, text: str) -> bool:
        """Whether a text certainly has more than `limit` tokens. False proves nothing."""
        if len(text) > self._most_characters:
            return True
        return len(text) > self._most_letters and sum(len(run[0]) for run in _KEPT.finditer(text)) > self._most_letters


def _most_characters_in_a_token(tokenizer: Any, vocabulary: Collection[str]) -> float:
    """The most characters that a single token covers: those of its name, or four times that before Unicode composition.

    Infinite if the tokenizer makes one token of endless spaces, or of an endless word that it doesn't know.
    """
    longest = 4 * max(map(len, vocabulary))
    runs = tokenizer([character * 2 * longest for character in " \na\U0010ffff"], add_special_tokens=False, verbose=False)
    return longest if all(len(ids) > 1 for ids in runs["input_ids"]) else math.inf


def _most_letters_in_a_token(tokenizer: Any, vocabulary: Collection[str]) -> float:
    """The most ASCII letters and digits in a single token; infinite if a token may stand for any number of them."""
    rules = getattr(tokenizer, "backend_tokenizer", None)
    if rules is None or not all(letter in vocabulary for letter in _ALPHABET):
        return math.inf
    is_bounded = (
        type(rules.model).__name__ == "BPE"
        and not any((rules.model.dropout, rules.model.continuing_subword_prefix, rules.model.end_of_word_suffix))
        and all(map(_keeps, _steps(rules.normalizer, "normalizers")))
        and all(map(_keeps, _steps(rules.pre_tokenizer, "pretokenizers")))
    )
    return max(len(_COUNTED.findall(token)) for token in vocabulary) if is_bounded else math.inf


def _steps(rule: Any, name: str) -> list[dict[str, Any]]:
    described: dict[str, Any] = json.loads(rule.__getstate__()) if rule is not None else {"type": "Sequence", name: []}
    return list(described[name]) if described["type"] == "Sequence" else [described]


def _keeps(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        return bool(step["pattern"] == {"String": " "})
    if step["type"] == "Split":
        return bool(step["behavior"] != "Removed")
    return step["type"] in _NORMALIZERS | _SPLITTERS
