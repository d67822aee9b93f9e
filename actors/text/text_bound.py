"""Which texts are certainly too long for a model, told by counting characters instead of making their tokens.

Nothing is refused that tokens would accept. For byte-pair tokenizers whose own rules are known not to lose an ASCII letter
or digit, a text has at least as many tokens as its letters and digits take, at the most that any single token holds. Spaces
and signs don't count: tokens for long runs of these are in every large vocabulary, and of letters there are none.
"""

import json
import math
import re
import string
from typing import Any

_KEPT = re.compile(r"[A-Za-z0-9]+(?=[\x00-\x7f]|$)")
"""Letters and digits that no normalisation can join with a combining mark, which would come next."""
_COUNTED = re.compile(r"[A-Za-z0-9]")
_ALPHABET = string.ascii_letters + string.digits
_NORMALIZERS = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Prepend", "ByteLevel"})
_SPLITTERS = frozenset({"ByteLevel", "Metaspace", "Digits"})


class TextBound:
    """Of one tokenizer, for prompts of at most `limit` tokens."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self._limit = limit
        self._most = _most_in_a_token(tokenizer)

    def is_passed(self, text: str) -> bool:
        """Whether a text certainly has more than `limit` tokens. False tells nothing."""
        least = self._limit * self._most
        return len(text) > least and sum(len(run[0]) for run in _KEPT.finditer(text)) > least


def _most_in_a_token(tokenizer: Any) -> float:
    """How many ASCII letters and digits the longest token holds; infinite where one may hold any number of them."""
    rules = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = tokenizer.get_vocab()
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
    """What a normalizer or pre-tokenizer does, one after another."""
    described: dict[str, Any] = json.loads(rule.__getstate__()) if rule is not None else {"type": "Sequence", name: []}
    return list(described[name]) if described["type"] == "Sequence" else [described]


def _keeps(step: dict[str, Any]) -> bool:
    """Whether a step is known to leave every ASCII letter and digit in the text."""
    if step["type"] == "Replace":
        return bool(step["pattern"] == {"String": " "})
    if step["type"] == "Split":
        return bool(step["behavior"] != "Removed")
    return step["type"] in _NORMALIZERS | _SPLITTERS
