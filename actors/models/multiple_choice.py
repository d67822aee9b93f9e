"""The verifier of multiple-choice answers: which letter a response chooses, and whether it is the reference's."""

import re

from actors.contracts.verifier import Verifier, without_weights
from actors.errors import Rejected, Unreadable
from actors.records import Reason

_MARKS = r"[\s*_`\"'“(\[{]*"
_CLOSES = r"(?=[*_`\"'”)\]}.,:;!?]|\s*$|\s+(?:because|since|as|is|and|which|\W)|\n)"


class MultipleChoice(Verifier):
    """A letter, stated as the answer."""

    name = "multiple-choice"
    summary = "the letter that the response chooses is the reference's (no weights)"
    read_at = (
        "the last \\boxed{B}, else the last `answer is B` or `Answer: B`, else a letter that the response begins with or is"
    )
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
        expected = re.fullmatch(rf"\W*([{letters}])\W*|\(?([{letters}])[).:]\s.*", reference.strip(), re.DOTALL)
        if expected is None:
            raise Rejected(Reason.BAD_REFERENCE, f"it is none of the letters {letters}")
        if (chosen := _chosen(answer, letters)) is None:
            raise Unreadable(Reason.NO_ANSWER)
        return float(chosen == (expected[1] or expected[2]))


def _chosen(text: str, letters: str) -> str | None:
    """The letter that a text states last as its answer; None if it states none, or only mentions some."""
    # A and I are words as well: they count where the clause ends. Of "B or C" neither is chosen.
    letter = rf"([{letters}])\b(?!['’]|\W*(?:or|and|[/,&])\W*[{letters}]\b)(?:(?<![AI])|{_CLOSES})"
    stated = [
        rf"\\boxed\{{\s*(?:\\(?:text|textbf|mathrm|mathbf)\{{)?\W{{0,3}}([{letters}])\b",
        rf"(?i:\banswer|\bchoice|\boption){_MARKS}(?:(?i:is|would be|:|=){_MARKS})+(?:(?i:option|choice){_MARKS})?{letter}",
    ]
    for pattern in stated:
        if matches := re.findall(pattern, text):
            return str(matches[-1])
    opening = re.match(rf"{_MARKS}([{letters}])(?:[*_`\"'”)\]}}]*\s*$|[*_`]*[).:\]])", text)
    return None if opening is None else opening[1]


FAMILY = MultipleChoice()
