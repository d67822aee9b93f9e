"""The verifier of mathematical answers: math-verify reads both, and SymPy says whether they are equal.

Responses are read as math-verify reads them: the last \\boxed{...}, or formula in dollars, or number; several boxes are one
set of answers. A reference may also be a formula without dollars, or end as GSM8K's do: `#### 72`.
"""

import logging
import re
from typing import Any

from actors.contracts.verifier import Verifier, without_weights
from actors.errors import Rejected, Unreadable
from actors.records import Reason

_DELIMITED = re.compile(r"\$|\\boxed|\\\(|\\\[|\\begin")
_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")
_EXPONENT = re.compile(r"\d[eE][+-]?\d")
"""1e-3, which math-verify reads as 1 times e less 3."""


class MathEqual(Verifier):
    """Equal as numbers, expressions, sets, intervals, equations or matrices."""

    name = "math-equal"
    summary = "the response's mathematical answer equals the reference (no weights)"
    source = "math-verify (Hugging Face), `verify(parse(reference), parse(response))` with its defaults"
    read_at = "the last boxed answer, formula or number; 50% equals 50 and 0.5, and 1/3 equals 0.333333"
    models = without_weights(
        name,
        "mathematical equality by math-verify",
        ("The answer is 42.", "42", 1.0),
        (r"So $x = \frac{1}{2}$", "0.5", 1.0),
        (r"\boxed{7}", "8", 0.0),
    )
    libraries = ("math-verify", "latex2sympy2_extended", "sympy")
    extra = "math"

    def prepare(self) -> None:
        import math_verify  # a second of import

        # It warns that its own time-outs are off: they need the main thread, and the engine's bound the time in any.
        logging.getLogger(math_verify.__name__).setLevel(logging.ERROR)

    def compare(self, answer: str, reference: str) -> float:
        from math_verify import verify

        expected = _parse_reference(reference)
        if not expected:
            raise Rejected(Reason.BAD_REFERENCE, "math-verify finds no answer in it")
        actual = _parse(answer)
        if not actual:
            raise Unreadable(Reason.NO_ANSWER)
        # Errors are raised: the default takes one, and a time-out, for an answer that is wrong.
        return float(verify(expected, actual, timeout_seconds=None, raise_on_error=True))


def _parse_reference(reference: str) -> list[Any]:
    """What a reference stands for; empty if nothing."""
    text = reference.rpartition("####")[2].strip()
    # Without dollars math-verify takes a number alone: of 2\pi the 2. A text with words in it, though, is no formula: in a
    # box each letter would be a factor.
    if _EXPONENT.search(text):
        return []
    is_formula = not (_DELIMITED.search(text) or _WORD.search(text))
    return _parse(f"\\boxed{{{text}}}" if is_formula else text)


def _parse(text: str) -> list[Any]:
    from math_verify import parse

    parsed: list[Any] = parse(text, parsing_timeout=None)
    return parsed


FAMILY = MathEqual()
