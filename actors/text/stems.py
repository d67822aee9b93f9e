"""Texts that begin alike are tokenised once as far as that is exact: up to a token that cuts a text, whatever follows.

A fast tokenizer takes the special tokens out of a text before anything else looks at it: what stands left and right of one
is normalised, split and merged by itself. So the ids up to the end of such a token are the same whatever comes after it, and
those after it are the same as behind the token alone. Everywhere else ids may depend on what follows, and nothing is shared.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

Tokenize = Callable[[list[str]], list[list[int]]]
GoOn = Callable[[], None]
"""Raises an error once nobody waits for the work any more."""

_DEEPEST = 4
"""Stems of stems: a context, a response to it, a principle that it is judged by."""
_AT_A_TIME = 2**20
"""Characters that are tokenised before the next look at whether anybody waits."""
_SHORTEST = 2000
"""Characters that a beginning has at least. Below, finding it costs as much as it saves."""


class _Cut(NamedTuple):
    """A text as the beginning that it shares, and the rest from the token at the end of that on."""

    stem: str
    rest: str


class Stems:
    """The tokens that cut texts of one tokenizer."""

    def __init__(self, tokenizer: Any, tokenize: Tokenize, written: Sequence[str], shortest: int = _SHORTEST) -> None:
        """`written` are texts with the tokens that a template writes; of these, those that cut a text are taken."""
        self._tokenize = tokenize
        self._shortest = shortest
        self.cutters = tuple(text for text in _cutters(tokenizer) if self._cuts_exactly(text, written))

    def tokenized(self, texts: Sequence[str], go_on: GoOn = lambda: None, depth: int = _DEEPEST) -> list[list[int]]:
        """The ids of each text, exactly as the tokenizer has them. Neighbours that begin alike share that work."""
        cuts = self._cut(texts) if depth else [_Cut("", text) for text in texts]
        stems = list(dict.fromkeys(cut.stem for cut in cuts if cut.stem))
        ids_of = dict(zip(stems, self.tokenized(stems, go_on, depth - 1), strict=True)) if stems else {}
        rests: list[list[int]] = []
        for batch in _batches([cut.rest for cut in cuts]):
            go_on()
            rests += self._tokenize(batch)
        # The first of the rest is the token that the stem ends with.
        return [ids_of[cut.stem] + ids[1:] if cut.stem else ids for cut, ids in zip(cuts, rests, strict=True)]

    def _cut(self, texts: Sequence[str]) -> list[_Cut]:
        """Each text by the longest stem that it shares with its neighbour before it, or after it."""
        if not self.cutters or len(texts) < 2:
            return [_Cut("", text) for text in texts]
        cuts: list[_Cut] = []
        stem = token = ""
        for at, text in enumerate(texts):
            if not (stem and text.startswith(stem)):
                after = texts[at + 1] if at + 1 < len(texts) else ""
                stem, token = max(
                    (self._shared_stem(text, other) for other in (texts[at - 1] if at else "", after)), key=_length
                )
            cuts.append(_Cut(stem, text[len(stem) - len(token) :]) if stem else _Cut("", text))
        return cuts

    def _shared_stem(self, text: str, other: str) -> tuple[str, str]:
        """What two texts share up to the end of the last token that cuts them, and that token; nothing if it is short."""
        alike = text[: _common_length(text, other)] if other[: self._shortest] == text[: self._shortest] else ""
        end, token = max(
            ((alike.rfind(token) + len(token), token) for token in self.cutters if token in alike), default=(0, "")
        )
        return (text[:end], token) if end >= self._shortest else ("", "")

    def _cuts_exactly(self, token: str, written: Sequence[str]) -> bool:
        """Whether a token is in these texts, and cuts each of them as it should."""
        for text in (sample for sample in written if token in sample):
            at = text.find(token)
            before, after, whole = self._tokenize([text[: at + len(token)], text[at:], text])
            if before + after[1:] != whole:
                return False
        return any(token in text for text in written)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in their order, so many at a time that they aren't long together."""
    batch: list[str] = []
    length = 0
    for text in texts:
        if batch and length + len(text) > _AT_A_TIME:
            yield batch
            batch, length = [], 0
        batch.append(text)
        length += len(text)
    if batch:
        yield batch


def _cutters(tokenizer: Any) -> list[str]:
    """The added tokens that nothing around them can make another: none if the tokenizer isn't a fast one."""
    if not getattr(tokenizer, "is_fast", False):
        return []
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.normalized and token.content]
    texts = [token.content for token in added]
    whole = [token.content for token in added if not token.single_word and token.content == token.content.strip()]
    return [text for text in whole if not any(_may_overlap(text, other) for other in texts)]


def _may_overlap(token: str, other: str) -> bool:
    """Whether another token may begin before the end of this one and hold or follow a part of it."""
    if token == other:
        return any(token.endswith(token[:size]) for size in range(1, len(token)))
    return token in other or any(other.endswith(token[:size]) for size in range(1, min(len(token), len(other) + 1)))


def _common_length(text: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(text), len(other))
    while low < high:  # each half is compared at once, so that all of them together are one pass
        half = (low + high + 1) // 2
        if text[low:half] == other[low:half]:
            low = half
        else:
            high = half - 1
    return low


def _length(stem: tuple[str, str]) -> int:
    return len(stem[0])
