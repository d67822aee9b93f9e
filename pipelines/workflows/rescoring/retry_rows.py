"""`retry`: scores responses that have failed again, in place.

1. Check that the folder is complete and that the model and the settings are those of the run; take its lease.
2. Note the retry in the manifest, with the counts before it.
3. For each part with such responses: read their rows from the part, score them, and write the part anew with their outcomes.
   All other rows of the part are taken over as they are. The part is replaced at once (`Parts.replace`).
4. Audit and summarise the parts, and write the manifest with the counts after it.

A request (a context and its responses) is scored as a whole, and its outcomes are taken if fewer of its responses fail than
before, or as many and none had a reward. A judge's request that had no verdict is drawn with further seeds, which follow
those of `reask`; everything else is drawn with the same seeds, and gets what the run would have given it.
"""

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from actors.records import Status
from actors.text.counted import counts_text
from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.corpus.units import Unit
from pipelines.data.storage.lease import lease
from pipelines.folders.run_folder.columns import REASON, STATUS
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.manifest import provenance
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import open_part
from pipelines.folders.scored_corpus.scored_folder import audit_parts, read_manifest_with_parts
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring.score_corpus import Pipeline, Run, execute
from pipelines.settings.rescore_settings import RETRIED, RetrySettings
from pipelines.workflows.rescoring.reopen import reopen
from pipelines.workflows.rescoring.replace_part import Retrying, sessions
from pipelines.workflows.rescoring.rescore_step import rescoring_flow
from pipelines.workflows.run_logging.logged_progress import observers_of

_THREADS = 8  # reads of parts' columns at a time: in an object store each is a wait


@dataclass(frozen=True)
class RetrySummary(Readable):
    """The responses that were to be scored again by reason, what they are now by outcome, and the counts of all.

    `summary` is of the whole folder; None if nothing was to be scored again.
    """

    retried: Mapping[str, int]
    now: Mapping[str, int]
    before: Counts
    after: Counts
    summary: Summary | None = None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "retried": dict(self.retried),
            "now": dict(self.now),
            "before": self.before._asdict(),
            "after": self.after._asdict(),
        }


@dataclass(frozen=True)
class RetryRun(Run):
    """A run whose work is its parts with responses that have failed for some reasons, but those that `session` retried."""

    reasons: frozenset[str] = frozenset()
    session: str = ""

    def missing(self, state: FolderState) -> list[Unit]:
        """The ranges of the parts that are still to be retried."""
        files = {file.index: file for file in self.manifest.files}
        return [Unit(files[part.file], part.range) for part in self.failed_reasons(state)]

    def failed_reasons(self, state: FolderState) -> dict[Part, list[str]]:
        """The parts that are still to be retried, each with the reasons of its responses that are."""
        candidates = [part for part in state.parts if part.counts.failed]  # by their names, without reading any
        with ThreadPoolExecutor(_THREADS) as threads:
            reasons = list(threads.map(self._reasons_of, candidates))
        return {part: of_part for part, of_part in zip(candidates, reasons, strict=True) if of_part}

    def _reasons_of(self, part: Part) -> list[str]:
        prefix = self.manifest.columns.prefix
        with open_part(self.parts.path(part)) as parquet:
            # Its failures of now are those of this session's own attempt: without this, a pass would follow upon another.
            if self.session in sessions(parquet.schema_arrow.metadata):
                return []
            table = parquet.read([prefix + name for name in (STATUS, REASON)])
        failed = table.filter(pc.equal(table.column(prefix + STATUS), Status.FAILED.value))
        return [reason for reason in failed.column(prefix + REASON).to_pylist() if reason in self.reasons]


def retry(settings: RetrySettings, progress: Progress | None = None) -> RetrySummary:
    """Score responses that have failed again, in place. Killed, it may be run again: what it has replaced stays.

    Raises a `UserError` if the folder isn't a complete one of `score`, another run holds it, or the model or the settings
    aren't those of the run; `RunStopped` if it ended early; and `AuditError` if the parts don't add up to the input.
    """
    progress = progress or Progress()
    folder = storage.absolute(settings.scored)
    manifest = read_manifest_with_parts(folder, "retry")
    opened = reopen(folder, manifest, settings.engines)
    # All may fail again, as they are those that had failed: the share that a run allows is of all its responses.
    work = opened.settings.work.model_copy(update={"max_failed_fraction": 1.0})
    accepting = opened.settings.model_copy(update={"accept_versions": settings.accept_versions, "work": work})
    opened = replace(opened, settings=accepting)
    with lease(folder, progress.noted, opened.settings.work.storage_patience_s):
        audit_parts(folder, manifest, partial=False)
        run = opened.run(RetryRun, reasons=frozenset(settings.reasons or RETRIED), session=secrets.token_hex(8))
        run = replace(run, state=run.parts.repair(manifest.files, progress.noted))
        before = run.state.audit()
        retried = dict(Counter(itertools.chain.from_iterable(run.failed_reasons(run.state).values())).most_common())
        if not retried and manifest.summary is not None:  # else a retry was killed after its last part, and is ended now
            return RetrySummary({}, {}, before, before)
        entry = {
            "session": run.session,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "reasons": sorted(run.reasons),
            "made_with": provenance(run.settings),
            "before": before._asdict(),
            "after": None,
        }
        run = replace(run, manifest=replace(manifest, retries=(*manifest.retries, entry), summary=None))
        run.manifest.check_versions(provenance(run.settings), run.settings)
        run.manifest.write(folder)  # before any part: a retry that is killed has left its mark, and no summary of before
        progress.noted(f"{sum(retried.values()):,} responses that have failed are scored again: {counts_text(retried)}")
        summary = execute(run, _flow, progress, observers_of(run.settings))
        after = Counts(summary.rows, summary.scored, summary.rejected, summary.failed)
        retries = (*manifest.retries, {**entry, "after": after._asdict()})
        replace(run.manifest, retries=retries, summary=summary.as_json()).write(folder)
        # Of the responses that had failed before, whatever the reason.
        now = {
            "scored": after.scored - before.scored,
            "rejected": after.rejected - before.rejected,
            "failed": after.failed,
        }
        return RetrySummary(retried, now, before, after, summary)


@contextmanager
def _flow(run: Run, units: Sequence[Unit], notify: Callable[[str], None]) -> Iterator[Pipeline]:
    assert isinstance(run, RetryRun)
    places = {(unit.file.index, unit.range) for unit in units}
    parts = [part for part in run.parts.listing() if (part.file, part.range) in places]
    with rescoring_flow(run, parts, Retrying(run.reasons, run.session), notify) as flow:
        yield flow
