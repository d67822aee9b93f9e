"""A verdict that is one token (Yes or No): its log-probability less the other answer's, where the model wrote it.

The token is searched for at the end of a text that ended by itself, behind a given text. Taking the last token but one would
give the same for a text that ends right after the verdict, and the numbers of another token for every other text.
"""

from collections.abc import Sequence

from actors.engine.protocol import Generation
from actors.errors import Unreadable
from actors.records import Reason
from actors.verdicts.statements import Claim, check_agrees, label

# Smaller log-probabilities count as this, so that a reward stays finite where an answer was impossible (as the card).
LEAST = -50.0


def difference(generation: Generation, after: str, marks: Sequence[str], ids: Sequence[int]) -> float:
    """The log-probability of `ids[0]` less that of `ids[1]`, each at least -50, at the token behind the text `after`.

    `marks` are the texts of these two tokens. Raises `Unreadable` if the text doesn't end with `after` and one of them, or
    has the other one behind `after` elsewhere.
    """
    yes, no = ids
    word, space = _last_verdict(generation.text, after, marks)
    words = {mark.strip(): mark.strip() for mark in marks}
    check_agrees(generation.text.rstrip().removesuffix(word), [Claim(label(after), word, words, alone=True)])
    position = max((position for position, token in enumerate(generation.token_ids) if token in (yes, no)), default=None)
    # After the answer come white space, of which each character may be a token, and the token that ends the text. Further
    # to the left an equal token is another word's.
    if position is None or len(generation.token_ids) - 1 - position > space + 1:
        raise Unreadable(Reason.NO_VERDICT)
    logprobs = generation.logprobs[position]
    return max(logprobs[yes], LEAST) - max(logprobs[no], LEAST)


def _last_verdict(text: str, after: str, marks: Sequence[str]) -> tuple[str, int]:
    """The word of the verdict at a text's end, and how many characters of white space follow it. Raises `Unreadable`.

    A verdict is `after`, then spaces or tabs, then one of the marks. Read from the end with `rstrip`: a regular expression
    would start again at every space, which takes quadratic time in a text of nothing but spaces.
    """
    written = text.rstrip()
    for mark in marks:
        word = mark.rstrip()
        space = text[len(written) :]
        if not written.endswith(word) or not space.startswith(mark[len(word) :]):
            continue
        before = written[: len(written) - len(word)]
        bare, bare_after = before.rstrip(" \t"), after.rstrip(" \t")
        if bare.endswith(bare_after) and before.startswith(after[len(bare_after) :], len(bare)):
            return word.strip(), len(space) - (len(mark) - len(word))
    raise Unreadable(Reason.NO_VERDICT)
