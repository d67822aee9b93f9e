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
# Words, other letters than Latin and Greek ones, and the marks of sentences: no formula has them.
_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}|[^\W\d_A-Za-z\u0370-\u03ff]|[:;?]\s|\w\n")
# A number with a unit: "12 square miles", "5 km/h", "4\text{ cm}".
_WITH_UNIT = re.compile(
    r"[-+]?[€£¥]?[\d.,/]*\d(\s(square |cubic )?[A-Za-z]{2,}(/[A-Za-z]+)?|(\\[,; ]|\s)?\\text\{[^{}]*\})(\^?\d)?\.?"
)
# 1e-3 and 3 million, of which math-verify reads the 1 and the 3.
_SCALED = re.compile(r"(?<![\d.,])([\d.,]*\d)(?:[eE][+-]?\d|\s*(?:hundred|thousand|million|billion|dozen)\b)")
# 1e-3, in a formula 1 times e less 3; 3 1/2, half or three halves; and dates, which are differences or quotients.
_MISREAD = re.compile(r"\d[eE][+-]?\d|\d\s+\d+/\d|\b\d{4}-\d\d?-\d|\d/\d+/\d")
# What a formula without dollars may hold that math-verify leaves out: of 2\pi it takes the 2.
_LETTERED = re.compile(r"[A-Za-z\\^!:,]")


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
        actual = _parse(answer.strip(), is_formula=_is_bare(answer.strip()) and _LETTERED.search(answer) is not None)
        if not actual:
            raise Unreadable(Reason.NO_ANSWER)
        # Errors are raised: the default takes one, and a time-out, for an answer that is wrong.
        return float(verify(expected, actual, timeout_seconds=None, raise_on_error=True))


def _parse_reference(reference: str) -> list[Any]:
    text = reference.rpartition("####")[2].strip()
    if not (_is_bare(text) or _DELIMITED.search(text) or _WITH_UNIT.fullmatch(text)):
        return []  # a sentence, whose last number may be any
    return _parse(text, is_formula=_is_bare(text))


def _is_bare(text: str) -> bool:
    # Whether a text is a formula without dollars. One with words is none: in a box each letter would be a factor.
    return not (_DELIMITED.search(text) or _WORD.search(text) or _WITH_UNIT.fullmatch(text))


def _parse(text: str, *, is_formula: bool) -> list[Any]:
    # What math-verify reads; empty if nothing, or not what stands there, or what has no value.
    import sympy
    from math_verify import parse

    parsed: list[Any] = parse(f"\\boxed{{{text}}}" if is_formula else text, parsing_timeout=None)
    digits = re.sub(r"\D", "", read := str(parsed[-1]) if parsed else "")
    is_part = any(re.sub(r"\D", "", scaled[1]) == digits for scaled in _SCALED.finditer(text))
    # SymPy's infinity without a sign, as of 1/0, and its "not a number" are no answers.
    has_no_value = any(isinstance(value, sympy.Basic) and value.has(sympy.zoo, sympy.nan) for value in parsed)
    return [] if is_part or has_no_value or _MISREAD.search(read) else parsed


FAMILY = MathEqual()
