"""Examples of outcomes in the footer of each part: the first responses without a reward, and what is behind that.

Of each reason the first three are kept, whatever the part's size. A judge's readable texts are under `scored`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from actors.records import Score, Status

KEY = "assay_examples"
"""The key in a part's footer."""
_MOST, _CHARACTERS = 3, 500


@dataclass(frozen=True)
class Example:
    """A response by its row and name, and `detail`: what is wrong with the row, or what a judge wrote; may be empty."""

    row: str
    response: str
    detail: str
    reward: float | None = None


Examples = Mapping[str, Sequence[Example]]
"""By the reason, or `scored`."""


def examples_note(responses: Iterable[tuple[str, str, Score]], *, with_texts: bool) -> dict[str, str]:
    """The note of a part's responses, each with its row and name; without what judges wrote unless `with_texts`."""
    examples: dict[str, list[Example]] = {}
    for row, name, score in responses:
        of_outcome = examples.setdefault(score.reason or score.status, [])
        if len(of_outcome) < _MOST and (score.reward is None or (score.detail and with_texts)):
            detail = score.detail[:_CHARACTERS] if with_texts or score.status is Status.REJECTED else ""
            of_outcome.append(Example(row, name, detail, score.reward))
    return _note(examples)


def merge(several: Iterable[Examples]) -> dict[str, list[Example]]:
    """The first examples of each outcome."""
    merged: dict[str, list[Example]] = {}
    for examples in several:
        for outcome, of_outcome in examples.items():
            kept = merged.setdefault(outcome, [])
            kept += of_outcome[: _MOST - len(kept)]
    return merged


def is_enough(examples: Examples, reasons: Mapping[str, int]) -> bool:
    """Whether there are as many examples of each reason as are kept, by the numbers of responses that have it."""
    return all(len(examples.get(reason, ())) >= min(_MOST, count) for reason, count in reasons.items())


def read_examples(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[Example]]:
    """The examples in the metadata of a part, or of its table."""
    noted = json.loads((metadata or {}).get(KEY.encode(), b"{}"))
    return {outcome: [Example(**fields) for fields in of_outcome] for outcome, of_outcome in noted.items()}


def with_new_examples(
    old: Mapping[bytes, bytes] | None, new: Mapping[bytes, bytes] | None, replaced: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """The note of a part of which some responses, by row and name, were `replaced` by those that `new` is of."""
    gone = set(replaced)
    kept = {
        outcome: [example for example in of_outcome if (example.row, example.response) not in gone]
        for outcome, of_outcome in read_examples(old).items()
    }
    return _note(merge([kept, read_examples(new)]))


def _note(examples: Examples) -> dict[str, str]:
    noted = {outcome: [asdict(example) for example in of_outcome] for outcome, of_outcome in examples.items() if of_outcome}
    return {KEY: json.dumps(noted)} if noted else {}
