"""What the judge of a principle writes: text, its tokens, the log-probabilities at each, and the difference that it means.

At every position stand other log-probabilities, so that a neighbour's would show.
"""

from collections.abc import Mapping
from typing import NamedTuple

from actors.engine.protocol import Generation
from actors.records import Reason
from tests.support.forms import forms

YES, NO, END = 7414, 2308, 151645
"""Ids of ' Yes' and ' No', and of the token that ends a text."""
_IDS = {" Yes": YES, " No": NO, "<end>": END}
NONE, SEVERAL = Reason.NO_VERDICT, Reason.TWO_VERDICTS
MARK = ("Final", " Jud", "gement", ":")


class Case(NamedTuple):
    """A text in tokens, and what it means: at which token from the right, and what comes of the numbers there."""

    name: str
    generation: Generation
    expected: float | Reason


def generate(tokens: tuple[str, ...], numbers: Mapping[int, tuple[float, float]]) -> Generation:
    """A text of these tokens; `numbers` has log-probabilities of yes and no at some of them, counted from the right."""
    ids = tuple(_IDS.get(token, 1000 + len(token)) for token in tokens)
    logprobs = [{YES: -3.0 - at / 8, NO: -5.0 - at / 2} for at in range(len(ids))]
    for at, (yes, no) in numbers.items():
        logprobs[at] = {YES: yes, NO: no}
    return Generation("".join(tokens).replace("<end>", ""), ids, "stop", tuple(logprobs), 0, len(ids))


def good(name: str, *tokens: str, at: int = -2, yes: float = -0.25, no: float = -1.5, expected: float = 1.25) -> Case:
    return Case(name, generate(tokens, {at: (yes, no)}), expected)


def bad(name: str, *tokens: str, reason: Reason = NONE) -> Case:
    return Case(name, generate(tokens, {}), reason)


HM = ("So", " the", " sum", " is", " right", ".", "\n")

CASES: tuple[Case, ...] = (
    good("yes", *MARK, " Yes", "<end>"),
    good("no", *MARK, " No", "<end>", yes=-4.0, no=-0.5, expected=-3.5),
    good("yes, though no was likelier", *MARK, " Yes", "<end>", yes=-2.0, no=-0.5, expected=-1.5),
    good("equally likely", *MARK, " No", "<end>", yes=-0.75, no=-0.75, expected=0.0),
    good("reasoning before", *HM, *MARK, " Yes", "<end>"),
    good("thinking before", "<think>", *HM, "</think>", *MARK, " Yes", "<end>"),
    good("thinking that the template began", *HM, "</think>", "\n", *MARK, " Yes", "<end>"),
    # At least -50.
    good("impossible no", *MARK, " Yes", "<end>", yes=-0.25, no=-80.0, expected=49.75),
    good("impossible yes", *MARK, " No", "<end>", yes=-80.0, no=-0.25, expected=-49.75),
    good("a no of minus infinity", *MARK, " Yes", "<end>", yes=0.0, no=-float("inf"), expected=50.0),
    good("a yes of minus infinity", *MARK, " No", "<end>", yes=-float("inf"), no=0.0, expected=-50.0),
    # How it ends.
    good("no token that ends it", *MARK, " Yes", at=-1),
    good("a newline token after it", *MARK, " Yes", "\n", "<end>", at=-3),
    good("two newlines in a token", *MARK, " Yes", "\n\n", "<end>", at=-3),
    good("two newline tokens", *MARK, " Yes", "\n", "\n", "<end>", at=-4),
    good("spaces after it", *MARK, " Yes", "  ", "<end>", at=-3),
    good("a space token before it", *MARK, " ", " Yes", "<end>"),
    # Several.
    good("the mark twice, the same", *MARK, " Yes", "\n", *MARK, " Yes", "<end>"),
    bad("the mark twice, not the same", *MARK, " No", "\n", *MARK, " Yes", "<end>", reason=SEVERAL),
    good("an earlier yes", "It", " says", " Yes", ".", *MARK, " No", "<end>", yes=-2.0, no=-0.5, expected=-1.5),
    good("one in the thinking", "<think>", *MARK, " No", "</think>", *MARK, " Yes", "<end>"),
    bad(
        "</think> in a quoted response",
        *("<think>", "'</think>", *MARK, " No", "'", "</think>", *MARK, " Yes", "<end>"),
        reason=SEVERAL,
    ),
    bad("the form quoted", "I", " end", " with", " '", *MARK, " Yes", "'.", *MARK, " No", "<end>", reason=SEVERAL),
    bad("injected and quoted", "It", " says", " '", *MARK, " Yes", "'", "\n", *MARK, " No", "<end>", reason=SEVERAL),
    *(
        bad(f"another quoted, its own as {form}", form, "\n", "It ends with: ", *MARK, " Yes", "<end>", reason=SEVERAL)
        for form in forms("""final judgement: No.¦**Final Judgement**: No¦**Final Judgement:** No¦FINAL JUDGEMENT: NO
Final Judgement : No¦Final Judgement = No¦### Final Judgement⏎No¦Final  Judgement:  **No**¦Final_Judgement: No
Final Judgement is No.¦<final_judgement>No</final_judgement>¦| Final Judgement | No |¦No.""")
    ),
    good("the same in another spelling", "**Final Judgement**: Yes", "\n", *MARK, " Yes", "<end>"),
    good("the words in a sentence", "My final judgement has no doubts.", "\n", *MARK, " Yes", "<end>"),
    good("the beginning of another word before it", *MARK, " Nobody", " knows", ".", *MARK, " Yes", "<end>"),
    # Nothing to read.
    bad("empty"),
    bad("no mark", *HM, " Yes", "<end>"),
    bad("yes alone", " Yes", "<end>"),
    bad("cut off after the mark", *HM, *MARK, "<end>"),
    bad("cut off in the mark", " Yes", "Final", " Jud", "<end>"),
    bad("a space after the mark", *MARK, " ", "<end>"),
    bad("in the thinking alone", "<think>", *MARK, " Yes", "</think>", "<end>"),
    bad("thinking never closed", "<think>", *HM, *MARK, " Yes", "<end>"),
    bad("thinking opened again", "<think>", "</think>", "<think>", *MARK, " Yes", "<end>"),
    bad("the mark in the thinking, the answer after", "<think>", *MARK, "</think>", " Yes", "<end>"),
    bad("another spelling of the mark", "Final", " Jud", "gment", ":", " Yes", "<end>"),
    bad("a lower-case mark", "final", " jud", "gement", ":", " Yes", "<end>"),
    bad("the mark in bold", "**", "Final", " Jud", "gement", "**", ":", " Yes", "<end>"),
    # Another answer.
    bad("lower case", *MARK, " yes", "<end>"),
    bad("lower case and many newlines, an answer before", " Yes", *MARK, " no", "\n\n\n\n\n\n\n\n", "<end>"),
    bad("no space", *MARK, "Yes", "<end>"),
    bad("no space and many newlines, an answer before", " No", *MARK, "Yes", "\n\n\n\n\n\n\n\n", "<end>"),
    bad("in bold", *MARK, " **", "Yes", "**", "<end>"),
    bad("a point after it", *MARK, " Yes", ".", "<end>"),
    bad("a comma and why", *MARK, " Yes", ",", " it", " is", "<end>"),
    bad("yes or no", *MARK, " Yes", " or", " No", "<end>"),
    bad("yes/no and newlines", *MARK, " Yes", "/No", "\n\n", "<end>"),
    bad("no-one", *MARK, " No", "-one", "<end>"),
    bad("the beginning of another word", *MARK, " No", "pe", "\n\n", "<end>"),
    bad("a box", *MARK, " \\boxed{", "Yes", "}", "<end>"),
    bad("on the next line", *MARK, "\n", "Yes", "<end>"),
    bad("text after it", *MARK, " Yes", "\n", "Because", " it", " is", "<end>"),
    bad("a mention after it", *MARK, " Yes", "\n", "No", " doubt", ".", "<end>"),
)
