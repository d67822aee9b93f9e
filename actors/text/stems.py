"""Tokenizes the common beginnings ("stems") of texts once, up to a special token, where that gives exactly the same ids.

A fast tokenizer splits a text at its special tokens before anything else: the pieces left and right of one are normalised,
split and merged separately. So the ids up to the end of such a token don't depend on the text after it, and the ids after it
are those that the text has behind the token alone. At any other place, ids may depend on what follows: nothing is shared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")
Tokenize = Callable[[list[str]], list[list[int]]]
CheckCancelled = Callable[[], None]
"""Called between pieces of work; raises an error to cancel it, once nothing waits for the result."""

# Levels of stems of stems: a context, a response to it, a principle for both, and one more.
_DEEPEST = 4
# Characters in one call of the tokenizer; between calls the work can be cancelled.
_AT_A_TIME = 2**20
# The shortest stem in characters. Below, finding it costs as much time as it saves.
_SHORTEST = 2000


class _Cut(NamedTuple):
    """A text cut in two: the stem that it shares, and the rest, which repeats the special token at the stem's end."""

    stem: str
    rest: str


class PrefixSharingTokenizer:
    """Tokenizes many texts with one tokenizer, sharing the stems of neighbours.

    `cutters` are the special tokens at which a text can be cut.
    """

    def __init__(self, tokenizer: Any, tokenize: Tokenize, prompts: Sequence[str], shortest: int = _SHORTEST) -> None:
        """`prompts` are rendered ones: tokens that occur in them, and that cut them exactly, become `cutters`."""
        self._tokenize = tokenize
        self._shortest = shortest
        self.cutters = tuple(text for text in _cutters(tokenizer, prompts) if self._cuts_exactly(text, prompts))

    def tokenized(
        self, texts: Sequence[str], check_cancelled: CheckCancelled = lambda: None, depth: int = _DEEPEST
    ) -> list[list[int]]:
        """The ids of each text, exactly as the tokenizer makes them. Texts that share a stem must be neighbours.

        The stems are tokenized by this method again: the prompts of a row share its context, and within that other stems.
        """
        # 64 answers to a context of 8,000 characters are 512,000 characters of context as whole texts, and 8,000 as a stem.
        cuts = self._cut(texts) if depth else [_Cut("", text) for text in texts]
        stems = list(dict.fromkeys(cut.stem for cut in cuts if cut.stem))
        ids_of = dict(zip(stems, self.tokenized(stems, check_cancelled, depth - 1), strict=True)) if stems else {}
        rests: list[list[int]] = []
        for batch in batches((cut.rest for cut in cuts), _AT_A_TIME, len):
            check_cancelled()
            rests += self._tokenize(batch)
        # The rest was tokenized behind the special token that ends the stem, so its first id repeats the stem's last: of
        # "<s>context<e>answer" the stem is "<s>context<e>" and the rest "<e>answer". "answer" alone may have other ids.
        return [ids_of[cut.stem] + ids[1:] if cut.stem else ids for cut, ids in zip(cuts, rests, strict=True)]

    def _cut(self, texts: Sequence[str]) -> list[_Cut]:
        if not self.cutters or len(texts) < 2:
            return [_Cut("", text) for text in texts]
        cuts: list[_Cut] = []
        stem = token = ""
        for position, text in enumerate(texts):
            if not (stem and text.startswith(stem)):  # one stem serves a whole run of neighbours
                after = texts[position + 1] if position + 1 < len(texts) else ""
                stem, token = max(
                    (self._shared_stem(text, other) for other in (texts[position - 1] if position else "", after)),
                    key=_length,
                )
            cuts.append(_Cut(stem, text[len(stem) - len(token) :]) if stem else _Cut("", text))
        return cuts

    def _shared_stem(self, text: str, other: str) -> tuple[str, str]:
        """The common beginning of two texts up to the end of its last cutter, and that cutter; empty if it is too short."""
        # Most pairs differ within the first characters, which one comparison shows without a bisection.
        common = text[: _common_length(text, other)] if other[: self._shortest] == text[: self._shortest] else ""
        end, token = max(
            ((common.rfind(token) + len(token), token) for token in self.cutters if token in common), default=(0, "")
        )
        return (text[:end], token) if end >= self._shortest else ("", "")

    def _cuts_exactly(self, token: str, prompts: Sequence[str]) -> bool:
        """Whether cutting each of these texts at the token gives the same ids as the uncut text."""
        for text in (sample for sample in prompts if token in sample):
            position = text.find(token)
            before, after, uncut = self._tokenize([text[: position + len(token)], text[position:], text])
            if before + after[1:] != uncut:
                return False
        return True


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in their order, in batches of at most this size together.

    A larger item is a batch of its own.
    """
    batch: list[Item] = []
    total = 0
    for item in items:
        if batch and total + size(item) > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _cutters(tokenizer: Any, prompts: Sequence[str]) -> list[str]:
    """The added tokens in these texts that are found wherever their text stands, whatever is around it.

    Left out: tokens that are matched after normalisation, that match whole words only, or before whose end another one could
    begin. None of a slow tokenizer.
    """
    if not getattr(tokenizer, "is_fast", False):
        return []
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.normalized and token.content]
    # Looked at before they are compared with all others: of Gemma 3's 6,384 added tokens a prompt has four.
    shown = [token for token in added if any(token.content in text for text in prompts)]
    unconditional = [token.content for token in shown if not token.single_word and token.content == token.content.strip()]
    return [text for text in unconditional if not any(_may_overlap(text, other.content) for other in added)]


def _may_overlap(token: str, other: str) -> bool:
    """Whether another token could begin before the end of this one, so that a text's tokens depend on what follows.

    The other may be the token itself: in "ababa" there are two places for "aba".
    """
    beginnings = [token[:size] for size in range(1, len(token))]
    return (token in other and token != other) or other.endswith(tuple(beginnings))


def _common_length(text: str, other: str) -> int:
    low, high = 0, min(len(text), len(other))
    # Each step compares half of what is left, so together they look at each character about once. Comparing slices is one
    # call in C, while a loop over the characters of a megabyte is not.
    while low < high:
        half = (low + high + 1) // 2
        if text[low:half] == other[low:half]:
            low = half
        else:
            high = half - 1
    return low


def _length(stem: tuple[str, str]) -> int:
    return len(stem[0])
