"""A verdict that is one token: how much likelier one answer was than the other, where the model gave one of them.

The token is found by what stands before it, at the very end of a text that ended by itself; the position before the last is
the same in the normal case, and a wrong one in every other.
"""

from collections.abc import Sequence

from actors.engine.protocol import Generation
from actors.errors import Unreadable
from actors.records import Reason
from actors.verdicts.parsing import answer_of

LEAST = -50.0
"""What a log-probability counts as at least, so that one impossible answer has a finite reward (the card's)."""


def difference(generation: Generation, after: str, marks: Sequence[str], ids: Sequence[int]) -> float:
    """The log-probability of one token less that of another, each at least -50, at the token after the text `after`.

    `marks` and `ids` are the two: the one that counts, and the one that is subtracted. Raises `Unreadable` if the text
    doesn't end with one of them there.
    """
    yes, no = ids
    rest = _after_the_answer(answer_of(generation.text), after, marks)
    if rest is None:
        raise Unreadable(Reason.NO_VERDICT)
    at = max((at for at, token in enumerate(generation.token_ids) if token in (yes, no)), default=None)
    # After the answer come white space, of which each character may be a token, and the token that ends the text. Further
    # to the left an equal token is another word's.
    if at is None or len(generation.token_ids) - 1 - at > rest + 1:
        raise Unreadable(Reason.NO_VERDICT)
    logprobs = generation.logprobs[at]
    return max(logprobs[yes], LEAST) - max(logprobs[no], LEAST)


def _after_the_answer(text: str, after: str, marks: Sequence[str]) -> int | None:
    """How much white space ends a text of `after`, spaces or tabs, and one of the marks; None if that isn't how it ends.

    Read from the end, so that a text of nothing but spaces is read once, and not from each of them.
    """
    written = text.rstrip()
    for mark in marks:
        word = mark.rstrip()
        rest = text[len(written) :]
        if not written.endswith(word) or not rest.startswith(mark[len(word) :]):
            continue
        before = written[: len(written) - len(word)]
        bare, wanted = before.rstrip(" \t"), after.rstrip(" \t")
        if bare.endswith(wanted) and before.startswith(after[len(wanted) :], len(bare)):
            return len(rest) - (len(mark) - len(word))
    return None
