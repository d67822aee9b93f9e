"""What a retry does with a part: selects the requests that have failed, and puts a part with their new outcomes there."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from actors.errors import SourceError
from actors.records import Reason, Status
from pipelines.folders.run_folder.columns import PROMPT_TOKENS, REASON, RESPONSE, ROW, STATUS, Columns
from pipelines.folders.run_folder.examples import KEY as EXAMPLES_KEY
from pipelines.folders.run_folder.examples import note, read_examples
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table
from pipelines.run.prepare.score_requests import Outcome
from pipelines.run.scoring.score_step import StepSettings, scored_table
from pipelines.workflows.rescoring.part_rows import (
    REDRAWS_KEY,
    PartWork,
    Redraws,
    RescoredRequest,
    prepare_requests,
    read_redraws,
)

# The key in a part's metadata of its retries, a list as JSON: session, reasons, versions, counts before and after.
RETRIES_KEY = "assay_retries"

# There was no text, so the first one is still to be drawn. After other failures the same text would come.
_OF_ENGINES = {Reason.ENGINE_REFUSED, Reason.ENGINE_TIMEOUT, Reason.ENGINE_KILLER}
_SAME_SEEDS = _OF_ENGINES | {Reason.ENDPOINT_FAILED, Reason.ENDPOINT_REFUSED}


def sessions(metadata: Mapping[bytes, bytes] | None) -> list[str]:
    """The sessions that have retried a part, by its metadata."""
    return [retry["session"] for retry in _retries(metadata)]


def _retries(metadata: Mapping[bytes, bytes] | None) -> list[dict[str, Any]]:
    retries: list[dict[str, Any]] = json.loads((metadata or {}).get(RETRIES_KEY.encode(), b"[]"))
    return retries


@dataclass(frozen=True)
class Retrying:
    """Scores the requests again of which a response has failed for one of the reasons."""

    uses_notes: ClassVar[bool] = True

    reasons: frozenset[str]
    session: str

    def select(self, settings: StepSettings, part: Part) -> PartWork:
        current = _CurrentPart.read(settings.parts, part, settings.preparation.columns)
        # Nothing of a part that this session has replaced: its worker died, and Ray gives the part to another one.
        if self.session in sessions(current.table.schema.metadata):
            return PartWork(current.part, ())
        names_by_row: dict[str, set[str]] = {}
        for (row, name), place in current.places.items():
            if current.statuses[place] == Status.FAILED and current.reasons[place] in self.reasons:
                names_by_row.setdefault(row, set()).add(name)
        rescored_requests = prepare_requests(current.part, current.table, names_by_row, settings.preparation)
        return PartWork(
            current.part, tuple(rescored.with_redraw(current.next_draw(rescored)) for rescored in rescored_requests)
        )

    def finish(
        self, settings: StepSettings, work: PartWork, outcomes: Sequence[Sequence[Outcome]], runner: str
    ) -> dict[str, Any]:
        current = _CurrentPart.read(settings.parts, work.part, settings.preparation.columns)
        if self.session not in sessions(current.table.schema.metadata):
            current = self._replace(settings, current, list(zip(work.requests, outcomes, strict=True)), runner)
        return current.report()

    def _replace(
        self,
        settings: StepSettings,
        current: "_CurrentPart",
        scored: Sequence[tuple[RescoredRequest, Sequence[Outcome]]],
        runner: str,
    ) -> "_CurrentPart":
        accepted = [(rescored, outcomes) for rescored, outcomes in scored if current.is_better(rescored, outcomes)]
        table = current.merged(accepted)
        statuses = table.column(current.columns.prefix + STATUS).to_pylist()
        after = Counts.of_statuses(current.part.counts.rows, statuses)
        retry = {
            "session": self.session,
            "reasons": sorted(self.reasons),
            "made_with": json.loads(settings.metadata["assay"]) | {"model_runner": runner},
            "before": current.part.counts._asdict(),
            "after": after._asdict(),
        }
        # Also of those that weren't accepted: the next retry must not draw the same texts once more.
        accepted_ids = {rescored.id for rescored, _ in accepted}
        redraws = current.redraws | {
            rescored.id: current.redraws_after(rescored, rescored.id in accepted_ids) for rescored, _ in scored
        }
        metadata = {key.decode(): value.decode() for key, value in (current.table.schema.metadata or {}).items()}
        metadata.pop(EXAMPLES_KEY, None)  # those of the new table hold
        metadata[RETRIES_KEY] = json.dumps([*_retries(current.table.schema.metadata), retry])
        metadata[REDRAWS_KEY] = json.dumps({name: redraw for name, redraw in redraws.items() if redraw.tried})
        part = current.part._replace(counts=after)
        settings.parts.replace(current.part, part, table, metadata)
        return _CurrentPart(part, table, current.columns)


class _CurrentPart:
    def __init__(self, part: Part, table: pa.Table, columns: Columns) -> None:
        self.part = part
        self.table = table
        self.columns = columns
        rows, names, self.statuses, self.reasons = (
            table.column(columns.prefix + name).to_pylist() for name in (ROW, RESPONSE, STATUS, REASON)
        )
        self.places = {(row, name): place for place, (row, name) in enumerate(zip(rows, names, strict=True))}
        self.redraws = read_redraws(table)

    @classmethod
    def read(cls, parts: Parts, part: Part, columns: Columns) -> "_CurrentPart":
        """A part, or the one in its place, by a worker that was taken for lost. Raises `SourceError`."""
        try:
            return cls(part, read_table(parts.path(part)), columns)
        except SourceError:
            # Part names hold counts, so the part in its place has another name, and the range in common.
            replacements = [other for other in parts.listing() if other.place == part.place]
            if part in replacements or not replacements:
                raise
            return cls(replacements[0], read_table(parts.path(replacements[0])), columns)

    def _positions_of(self, rescored: RescoredRequest) -> list[int]:
        return [self.places[rescored.row, name] for name in rescored.names]

    def next_draw(self, rescored: RescoredRequest) -> int:
        """The draw that a request is scored with: that of its outcomes if only the engine failed, else one that is new."""
        earlier = self.redraws.get(rescored.id, Redraws())
        failures = {self.reasons[place] for place in self._positions_of(rescored) if self.statuses[place] == Status.FAILED}
        return earlier.kept if failures <= _SAME_SEEDS else earlier.tried + 1

    def redraws_after(self, rescored: RescoredRequest, is_accepted: bool) -> Redraws:
        """The redraws of a request after the one that it was scored with."""
        draw = max((prompt.redraw for prompt in rescored.request.prompts), default=0)
        earlier = self.redraws.get(rescored.id, Redraws())
        return Redraws(max(draw, earlier.tried), draw if is_accepted else earlier.kept)

    def is_better(self, rescored: RescoredRequest, outcomes: Sequence[Outcome]) -> bool:
        """Whether fewer responses of a request have failed than before; or as many, and none had or has a reward."""
        before = Counter(self.statuses[place] for place in self._positions_of(rescored))
        now = Counter(outcome.score.status for outcome in outcomes)
        failed = now[Status.FAILED] - before[Status.FAILED]
        # With as many failures, another draw of a reward that was there would only trade one number for another.
        return failed < 0 or (failed == 0 and not before[Status.SCORED] and not now[Status.SCORED])

    def merged(self, accepted: Sequence[tuple[RescoredRequest, Sequence[Outcome]]]) -> pa.Table:
        """The table with the new outcomes of requests; all other values are those that are there."""
        places = [place for rescored, _ in accepted for place in self._positions_of(rescored)]
        scored = [(rescored.row, outcome) for rescored, outcomes in accepted for outcome in outcomes]
        taken = self.table.take(pa.array(places, pa.int64()))
        new = scored_table(self.columns, taken, [row for row, _ in scored], [[outcome] for _, outcome in scored])
        # The new rows are put behind the old ones, and taken from there in place of those that they replace.
        order = list(range(self.table.num_rows))
        for number, place in enumerate(places):
            order[place] = self.table.num_rows + number
        old = self.table.replace_schema_metadata(None)
        table = pa.concat_tables([old, new.cast(old.schema)]).take(pa.array(order, pa.int64()))
        replaced = {(row, outcome.response) for row, outcome in scored}
        kept_examples = (
            each for each in read_examples(self.table.schema.metadata) if (each.row, each.response) not in replaced
        )
        return table.replace_schema_metadata(note([*kept_examples, *read_examples(new.schema.metadata)]))

    def report(self) -> dict[str, Any]:
        """The row of counts for the driver."""
        tokens = pc.sum(self.table.column(self.columns.prefix + PROMPT_TOKENS)).as_py()
        reasons = Counter(reason for reason in self.reasons if reason is not None)
        return {**self.part.report(), "tokens": tokens or 0, "reasons": json.dumps(reasons)}
