"""Pairs as a prompt and two texts, the better one first."""

from collections.abc import Iterator
from typing import Any

from assay.plugins import PairFormat, PreferencePair


def _rows(pair: PreferencePair) -> Iterator[dict[str, Any]]:
    yield {"prompt": pair.chosen.context[-1].content, "ranked": [pair.chosen.text, pair.rejected.text]}


FORMATS = (
    PairFormat(
        name="ranked-text",
        about="my trainer: the better text first",
        source="my-team/trainer@1.0",
        reserved=("prompt", "ranked"),
        rows=_rows,
    ),
)
