"""The verifier of multiple-choice answers: which letter a response chooses, and whether it is the reference's."""

import re

from actors.contracts.verifier import Verifier, without_weights
from actors.errors import Rejected, Unreadable
from actors.records import Reason

# What may stand around a letter: emphasis, quotation marks, brackets, LaTeX's \text{ and dollars.
_MARKS = r"(?:\\(?:text|math)\w*\{|[\s*_`\"'“(\[{$\\])*"
# A full stop that isn't that of `C. elegans` or B.C.
_STOP = r"[*_`]*\.(?=[*_`]*(?:\s+[^\sa-z]|\W*$))"
# How a letter ends that begins an item, `B)`, `B:` or `B.`, or that is all there is.
_ITEM = rf"(?:[*_`\"'”)\]}}$.]*\s*$|[*_`]*(?:[)\]]|:(?!\w))|{_STOP})"
# How one ends that was stated. A capitalised word may follow, but not A and I, which are words themselves ("A Frenchman").
_CLOSES = (
    rf"(?:(?<![AI])\s+[A-Z][a-z]|[)\]]|{_STOP}"
    r"|[*_`\"'”)\]}$\\]*(?:[^\S\n]*(?:\n|$)|[,;:!](?!\w)|\.\W*$|\s+(?:because|since|as|[-–—])\s))"
)
_STATES = re.compile(
    rf"(?i:\banswer|\bchoice|\boption){_MARKS}(?:(?i:is|would be|:|=){_MARKS})+(?:(?i:option|choice){_MARKS})?"
)
_BOXED = re.compile(r"((?:[^{}]|\{[^{}]*\})*)\}")
_SENTENCE_END = re.compile(r"[.!?]\s|\n")
# A sentence that denies, doubts or supposes states no answer: "it is unlikely that the answer is B".
_NEGATES = re.compile(
    r"n['’]t\b|(?i:\b(?:not|never|neither|nor|cannot|false|incorrect|wrong|worst|worse|least|unlikely|doubt|if|whether)\b)"
)


class MultipleChoice(Verifier):
    """A letter, stated as the answer."""

    name = "multiple-choice"
    summary = "the letter that the response chooses is the reference's (no weights)"
    read_at = "the last \\boxed{B}, else the last `answer is B` that isn't denied, else the letter that it is or begins with"
    models = without_weights(
        name,
        "the chosen letter",
        ("A good answer is B.", "B", 1.0),
        ("The answer is (C).", "C", 1.0),
        ("B) Paris", "A", 0.0),
    )
    takes = frozenset({"choices"})

    def compare(self, answer: str, reference: str) -> float:
        letters = self.settings.choices
        if (expected := _named(reference, letters)) is None:
            raise Rejected(Reason.BAD_REFERENCE, f"it is none of the letters {letters}, alone or as in `B) Paris`")
        if (chosen := _chosen(answer, letters)) is None:
            raise Unreadable(Reason.NO_ANSWER)
        return float(chosen == expected)


def _chosen(text: str, letters: str) -> str | None:
    # The last statement counts, as a response may weigh other letters first; a letter that is only mentioned is none.
    _, box, content = text.rpartition("\\boxed{")
    if box:
        boxed = _BOXED.match(content)
        return None if boxed is None else _named(re.sub(r"\\(?:text|math)\w*\{|[{}$\\]", "", boxed[1]), letters)
    *_, last = None, *_STATES.finditer(text)
    if last is None:
        return _named(text, letters)
    stated = re.compile(rf"([{letters}]){_CLOSES}").match(text, last.end())
    if stated is None or _NEGATES.search(_SENTENCE_END.split(text[: last.start()])[-1]):
        return None
    # "The answer is B, unless C is meant": whoever goes on to name another letter hasn't chosen.
    after = _SENTENCE_END.split(text[stated.end(1) :], maxsplit=1)[0]
    mentioned = re.findall(rf"(?<![\w'’])([{letters}])(?![\w'’]|(?<=I)\s+[a-z])", after)
    return stated[1] if set(mentioned) <= {stated[1]} else None


def _named(text: str, letters: str) -> str | None:
    # As in `B) Paris`. A text with other items, such as a copy of the whole question, names none.
    opening = re.match(rf"{_MARKS}([{letters}]){_ITEM}", text)
    items = re.findall(rf"(?<![\w'’])([{letters}])[*_`]*[).:\]](?!\w)", text)
    return opening[1] if opening and set(items) <= {opening[1]} else None


FAMILY = MultipleChoice()
