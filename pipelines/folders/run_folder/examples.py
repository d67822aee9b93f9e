"""Examples in the footer of each part: the first responses of each reason, and the first texts that a judge was read in."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from actors.records import Reason, Score, Status

KEY = "assay_examples"  # in the footer of a part
# Examples of each outcome, and characters of each text: the footer of a part is read whole by whoever opens it.
_MOST, _CHARACTERS = 3, 500


@dataclass(frozen=True)
class Example:
    """A response by its row and name. `outcome` is the reason or `scored`, `detail` what was wrong, or a judge's text."""

    outcome: str
    row: str
    response: str
    detail: str
    reward: float | None = None

    @classmethod
    def of(cls, row: str, response: str, score: Score, *, with_text: bool) -> "Example":
        is_told = with_text or score.status is Status.REJECTED or score.reason is Reason.ENGINE_REFUSED
        detail = score.detail[:_CHARACTERS] if is_told else ""
        return cls(score.reason or score.status, row, response, detail, score.reward)


def first_of_each(examples: Iterable[Example]) -> list[Example]:
    """The first examples of each outcome; a head's rewards are none.

    At most three of each outcome, in their order. A reward without a text, which is a head's, says nothing by itself.
    """
    counts = Counter[str]()
    kept = []
    for example in examples:
        counts[example.outcome] += 1
        if counts[example.outcome] <= _MOST and (example.reward is None or example.detail):
            kept.append(example)
    return kept


def note(examples: Iterable[Example]) -> dict[str, str]:
    """The first examples of each outcome as a part's metadata."""
    kept = list(map(asdict, first_of_each(examples)))
    return {KEY: json.dumps(kept)} if kept else {}


def read_examples(metadata: Mapping[bytes, bytes] | None) -> list[Example]:
    """The examples in the metadata of a part, or of its table."""
    return [Example(**fields) for fields in json.loads((metadata or {}).get(KEY.encode(), b"[]"))]
