"""Verifiers that compare two texts as they are: equal, equal but for the way they are written, alike."""

import unicodedata

from actors.contracts.verifier import Verifier, without_weights
from actors.errors import Rejected, Unreadable
from actors.records import Reason

# Quotation marks, emphasis and the ends of sentences: no - and no %, which belong to an answer.
_AROUND = "\"'`“”‘’«»*_ .,;:!?。！？"


class ExactMatch(Verifier):
    """The whole response, in every letter."""

    name = "exact-match"
    summary = "the response is the reference, in every letter (no weights)"
    read_at = "the whole response, without white space around it, and the reference"
    models = without_weights(name, "response and reference are equal", ("blue ", "blue", 1.0), ("Blue", "blue", 0.0))

    def compare(self, answer: str, reference: str) -> float:
        return float(answer.strip() == reference.strip())


class NormalisedMatch(Verifier):
    """The whole response, but for case, width, spaces, and punctuation around it."""

    name = "normalised-match"
    summary = "the response is the reference, but for case, spaces, and punctuation around it (no weights)"
    read_at = "both texts in one width and case, each run of white space one space, without quotes and full stops around"
    models = without_weights(
        name, "equal but for case and spaces", ("**Light  blue.**", "light blue", 1.0), ("1.5", "15", 0.0)
    )

    def compare(self, answer: str, reference: str) -> float:
        expected, actual = normalised(reference), normalised(answer)
        if not expected:
            raise Rejected(Reason.BAD_REFERENCE, "nothing but punctuation is in it")
        if not actual:
            raise Unreadable(Reason.NO_ANSWER)
        return float(actual == expected)


class TextSimilarity(Verifier):
    """How much of two texts is the same, by the letters that would have to be put in or left out."""

    name = "text-similarity"
    summary = "how alike response and reference are (no weights)"
    source = "rapidfuzz, fuzz.ratio: the normalised Indel similarity, which OpenAI's graders call fuzzy_match"
    read_at = "the two whole texts"
    range = "0 to 1"
    models = without_weights(name, "similarity of response and reference", ("abcd", "abcd", 1.0), ("abcd", "wxyz", 0.0))
    libraries = ("rapidfuzz",)

    def compare(self, answer: str, reference: str) -> float:
        return fuzzy_match(answer, reference)


def fuzzy_match(text: str, reference: str) -> float:
    """The similarity of two texts, from 0 to 1.

    1 less the letters to put in or leave out, by the letters of both; two empty texts are equal.
    """
    from rapidfuzz import fuzz  # only who compares so needs it

    return float(fuzz.ratio(text, reference) / 100)


def normalised(text: str) -> str:
    """A text without what doesn't change a short answer. Signs such as - and %, and the points of numbers, stay, and 5!."""
    is_wide = ("<wide>", "<narrow>")  # folded alone: in NFKC 2⁵ would be 25
    widths = (unicodedata.normalize("NFKC", c) if unicodedata.decomposition(c).startswith(is_wide) else c for c in text)
    spaced = " ".join(unicodedata.normalize("NFC", "".join(widths)).replace("−", "-").casefold().split())
    if not (bare := spaced.strip(_AROUND)):
        return ""
    # Given back: in ".5" the point is the number's, and in "5!" the mark is a factorial.
    before, _, after = spaced.partition(bare)
    point = "." if bare[0].isdigit() and before.endswith(".") and not before.endswith("..") else ""
    return point + bare + ("!" if bare[-1].isdigit() and after.startswith("!") else "")


FAMILY = (ExactMatch(), NormalisedMatch(), TextSimilarity())
