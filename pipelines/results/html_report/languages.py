"""The language of a text, by the frequent byte sequences of 140 languages (py3langid, a naive Bayes classifier).

Only the beginning is looked at, without its code: 500 characters take 0.1 ms (English) to 0.5 ms (Hindi), so that 20,000
sampled responses take 2 to 10 s. All of 100,000 would take up to 50 s.
"""

import functools
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

UNCLEAR = "unclear"
"""Of a text that is too short, that is mostly code or figures, or that could be of several languages."""
# Characters given to the classifier, whose time grows with them, and characters in which these are looked for when code is
# left out.
_LOOKED_AT, _READ = 500, 4_000
# In UTF-8: 24 Latin letters, 12 Cyrillic ones, 8 Chinese characters.
_FEWEST_BYTES = 24
_SURE = 0.6
"""The probability from which on a language is said.

Of messages of translated programs in 50 languages, of 80 characters each, 94.7 % have the right language then, 0.3 %
another; of 300 characters 99.2 % and 0.1 %.
"""
# Written too alike to be told apart by 500 characters: each counts for a larger one. zh: Yue and Wu, ar: its dialects, no:
# Nynorsk, hr: Bosnian.
_FOLDED = {"yue": "zh", "wuu": "zh", "ary": "ar", "arz": "ar", "nn": "no", "bs": "hr"}
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_NO_LANGUAGE = "zxx"  # ISO 639-2: no linguistic content


def language_of(text: str) -> str:
    """The ISO 639 code of the language at the beginning of a text, code in fences and spans left out; else `UNCLEAR`."""
    prose = _CODE.sub(" ", text[:_READ])[:_LOOKED_AT].strip()
    if len(prose.encode("utf-8", "replace")) < _FEWEST_BYTES:
        return UNCLEAR
    shares: Counter[str] = Counter()
    # Five hold nearly all of the probability. Those that fold together are added up before the limit is applied.
    for language, share in _identifier().rank(prose)[:5]:
        shares[_FOLDED.get(language, language)] += share
    ((best, share),) = shares.most_common(1)
    return best if share >= _SURE and best != _NO_LANGUAGE else UNCLEAR


@functools.cache
def _identifier() -> "LanguageIdentifier":
    # The classifier: half a second and 120 MB, so only where a report is made. Its probabilities add up to 1.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
