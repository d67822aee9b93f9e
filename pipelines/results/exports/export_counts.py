"""What an export made: the rows of a group, the counts of a piece, and those of the whole job."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from actors.text.readable import Readable
from pipelines.folders.scored_corpus.candidates import Candidate, LabelAgreement, LeftOut
from pipelines.folders.scored_corpus.read_back import CandidateOrLeftOut
from pipelines.results.exports import row_types


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """The rows made of one group of candidates, and counts by reason of what wasn't made (`left`)."""

    rows: Sequence[Mapping[str, Any]]
    left: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)  # by `LabelAgreement`, also of pairs left out for their labels
    left_fields: Mapping[str, int] = field(default_factory=dict)  # `count_left`


# Makes the rows of a group from its candidates, at least one, in the order of the corpus. Picklable: workers get it.
RowMaker = Callable[[Sequence[Candidate]], ExportedRows]


_COUNTS, _BY_REASON = ("groups", "candidates", "unscored", "rows"), ("left", "labels", "left_fields")  # what adds up


@dataclass(frozen=True)
class ExportSummary(Readable):
    """Counts of an export: groups (prompts or rows) with a candidate, candidates read, and rows made of them.

    `unscored` responses have no reward, and aren't candidates. `left` counts what wasn't made, by reason; that includes the
    candidates that don't meet the condition `where`, which are in no group.
    """

    groups: int = 0
    candidates: int = 0
    unscored: int = 0
    rows: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    """Pairs by how they go with the corpus' labels (`LabelAgreement`), including pairs left out for their labels."""
    made_up: bool = False
    """Whether the rewards are the fake engine's."""
    left_fields: Mapping[str, int] = field(default_factory=dict)
    """How many rows are without a field of the input, by its name and the reason."""
    mixed: bool = False
    """Whether the rows have a field of types that don't go together."""
    taken: str = field(default="", compare=False)
    """Which responses were read, in words."""
    row_types: str = field(default="", compare=False, repr=False)
    """The types of the rows' columns (`row_types`), for the card."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "ExportSummary | None":
        """The counts in a document or a note; None if another version of Assay, with other fields, wrote it."""
        try:
            return cls(**document)
        except TypeError:  # such a piece is made again
            return None

    def __add__(self, other: "ExportSummary") -> "ExportSummary":
        # Of pieces alone: what is of the whole job (`made_up`, `mixed`, `taken`) is filled in after the sum.
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        for name in _BY_REASON:
            total = Counter(getattr(self, name)) + Counter(getattr(other, name))
            sums[name] = dict(total if name == "left_fields" else sorted(total.items()))  # fields in the order of the input
        return ExportSummary(**sums, row_types=row_types.merge(self.row_types, other.row_types))

    def as_json(self) -> dict[str, Any]:
        omitted = [name for name in ("made_up", "left_fields", "mixed", "taken") if not getattr(self, name)]
        if self.labels.keys() <= {LabelAgreement.UNLABELLED}:
            omitted.append("labels")
        return {name: value for name, value in asdict(self).items() if name not in ("row_types", *omitted)}


class Tally:
    """Adds up, in place, what is made of groups: a summary for each, added to the last, would copy the lists as often.

    Plain numbers and loops, as `Counter.update` takes as long as making a pair.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._by_reason: dict[str, dict[str, int]] = {name: {} for name in _BY_REASON}

    def add(self, group: Sequence[CandidateOrLeftOut], candidates: int, exported: ExportedRows) -> None:
        """Count a group, of which `candidates` aren't left out."""
        unmet = 0
        if candidates < len(group):  # `count` reads the group: most groups are candidates only
            unmet = group.count(LeftOut.UNMET)
            self._by_reason["left"][LeftOut.UNMET.value] = self._by_reason["left"].get(LeftOut.UNMET.value, 0) + unmet
            self._counts["unscored"] += group.count(LeftOut.UNSCORED)
        self._counts["groups"] += candidates > 0
        self._counts["candidates"] += candidates + unmet
        self._counts["rows"] += len(exported.rows)
        for name, totals in self._by_reason.items():
            for reason, count in getattr(exported, name).items():
                totals[reason] = totals.get(reason, 0) + count

    def summary(self, types: str) -> ExportSummary:
        sums: dict[str, Any] = {**self._counts, **self._by_reason}
        return ExportSummary(**sums, row_types=types)
