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
        return ExportSummary(
            self.groups + other.groups,
            self.candidates + other.candidates,
            self.unscored + other.unscored,
            self.rows + other.rows,
            dict(sorted((Counter(self.left) + Counter(other.left)).items())),
            dict(sorted((Counter(self.labels) + Counter(other.labels)).items())),
            left_fields=dict(Counter(self.left_fields) + Counter(other.left_fields)),
            row_types=row_types.merge(self.row_types, other.row_types),
        )

    def as_json(self) -> dict[str, Any]:
        """For the document and for `--json`."""
        omitted = [name for name in ("made_up", "left_fields", "mixed", "taken") if not getattr(self, name)]
        if self.labels.keys() <= {LabelAgreement.UNLABELLED}:
            omitted.append("labels")
        return {name: value for name, value in asdict(self).items() if name not in ("row_types", *omitted)}


class Tally:
    """Adds up, in place, what is made of groups: a summary for each, added to the last, would copy the lists as often.

    Plain numbers and loops, as `Counter.update` takes as long as making a pair.
    """

    def __init__(self) -> None:
        self._groups = self._candidates = self._unscored = self._rows = 0
        self._left, self._labels, self._left_fields = Counter[str](), Counter[str](), Counter[str]()

    def add(self, group: Sequence[CandidateOrLeftOut], candidates: int, exported: ExportedRows) -> None:
        """Count a group, of which `candidates` aren't left out."""
        self._groups += candidates > 0
        self._candidates += candidates
        self._rows += len(exported.rows)
        if candidates < len(group):  # `count` reads the group: most groups are candidates only
            unmet = group.count(LeftOut.UNMET)
            self._candidates += unmet
            self._left[LeftOut.UNMET.value] += unmet
            self._unscored += group.count(LeftOut.UNSCORED)
        totals = ((self._left, exported.left), (self._labels, exported.labels), (self._left_fields, exported.left_fields))
        for total, counts in totals:
            for name, count in counts.items():
                total[name] += count

    def summary(self, types: str) -> ExportSummary:
        return ExportSummary(
            self._groups,
            self._candidates,
            self._unscored,
            self._rows,
            dict(self._left),  # `asdict`, by which notes are written, makes no `Counter` again
            dict(self._labels),
            left_fields=dict(self._left_fields),
            row_types=types,
        )
