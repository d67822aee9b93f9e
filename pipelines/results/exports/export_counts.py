"""What an export made: the rows of a group, the counts of a piece, and those of the whole job."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from pipelines.folders.scored_corpus.candidates import Candidate, LabelAgreement, LeftOut
from pipelines.folders.scored_corpus.read_back import CandidateOrLeftOut
from pipelines.results.exports import row_types


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """The rows made of one group of candidates, and counts by reason of what wasn't made (`left`)."""

    rows: Sequence[Mapping[str, Any]]
    left: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    """Counts by `LabelAgreement` of the pairs with the corpus' labels, including pairs left out for their labels."""
    left_fields: Mapping[str, int] = field(default_factory=dict)
    """Counts of the rows without an own field of the input, by its name and the reason (`count_left`)."""


class RowMaker(Protocol):
    """Makes rows of a group of candidates. Small and picklable."""

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        """Make the rows of one group: `candidates` are in the order of the corpus, at least one."""


@dataclass(frozen=True)
class ExportSummary:
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
    """Counts of pairs by `LabelAgreement`, including pairs left out for their labels."""
    made_up: bool = False
    """Whether the rewards are the fake engine's."""
    left_fields: Mapping[str, int] = field(default_factory=dict)
    """As in `ExportedRows`."""
    mixed: bool = False
    """Whether the rows have a field of types that don't go together."""
    taken: str = field(default="", compare=False)
    """Which responses were read, in words."""
    row_types: str = field(default="", compare=False, repr=False)
    """The types of the rows' columns (`row_types`), for the card."""

    def __add__(self, other: "ExportSummary") -> "ExportSummary":
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
        optional = {
            "labels": bool(self.labels.keys() - {LabelAgreement.UNLABELLED}),
            "made_up": self.made_up,
            "left_fields": bool(self.left_fields),
            "mixed": self.mixed,
            "taken": bool(self.taken),
        }
        omitted = ("row_types", *(name for name, is_shown in optional.items() if not is_shown))
        return {name: value for name, value in asdict(self).items() if name not in omitted}


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
        if candidates < len(group):
            unmet = group.count(LeftOut.UNMET)
            self._candidates += unmet
            self._left[LeftOut.UNMET.value] += unmet
            self._unscored += group.count(LeftOut.UNSCORED)
        for reason, count in exported.left.items():
            self._left[reason] += count
        for agreement, count in exported.labels.items():
            self._labels[agreement] += count
        for name, count in exported.left_fields.items():
            self._left_fields[name] += count

    def summary(self, types: str) -> ExportSummary:
        """The counts; `types` are those of the rows."""
        # Added to nothing: that sorts the counts, and drops those of 0.
        return ExportSummary() + ExportSummary(
            self._groups,
            self._candidates,
            self._unscored,
            self._rows,
            self._left,
            labels=self._labels,
            left_fields=self._left_fields,
            row_types=types,
        )
