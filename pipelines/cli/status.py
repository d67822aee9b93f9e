"""The progress of a run, from its folder alone: works on any machine that can read the folder."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from actors.errors import AuditError, SourceError
from pipelines.corpus.assay_folders import describe
from pipelines.runtime.progress import Meter
from pipelines.scored_corpus.manifest import read_manifest
from pipelines.scored_corpus.member_runs import is_fake
from pipelines.scored_corpus.parts import Counts, Part, Parts, audit, is_empty
from pipelines.storage import Entry, error_text

_RECENT_PARTS = 100
"""The rate and the remaining time are estimated from the newest 100 parts: the rate of the start would mislead."""


@dataclass(frozen=True)
class RunStatus:
    """The state of a run, read from its parts. `share` is 0 to 1; times are seconds, None if they can't be estimated."""

    model: str
    files: int
    complete: bool
    share: float
    parts: int
    rows: int
    responses: int
    scored: int
    rejected: int
    failed: int
    last_part_ago: float | None
    responses_per_s: float | None
    eta: float | None
    made_up: bool = False
    """Whether the scores are the fake engine's."""
    strays: tuple[str, ...] = ()
    """Files among the parts that aren't this run's."""
    empty: tuple[str, ...] = ()
    """Empty part files, whose rows will be scored again."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def status(folder: str) -> RunStatus:
    """The state of the run of a folder, whether running, stopped or complete.

    Raises `SourceError` if it is no such folder.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise SourceError(
            f"{folder} {describe(folder)}, and `status` reads a scored corpus (the output folder of `score`, `ensemble`, "
            "`sample` or `refine`)"
        )
    run = Parts(folder, manifest.run)
    try:
        entries, extents, strays = run.entries(), run.extents(manifest.files), run.strays()
    except OSError as error:
        raise SourceError(f"{folder} can't be read: {error_text(error)}") from error
    now = time.time()
    empty = sorted(entry.name for _, entry in entries if is_empty(entry))
    entries = [(part, entry) for part, entry in entries if not is_empty(entry)]
    parts = sorted(part for part, _ in entries)
    counts = sum((part.counts for part in parts), Counts())
    try:
        audit(manifest.files, extents, parts)
        complete = manifest.summary is not None
    except AuditError:
        complete = False
    done = Meter(manifest.files, parts, now).share()
    recent = sorted(entries, key=lambda pair: pair[1].written)[-_RECENT_PARTS:]
    before = Meter(manifest.files, _before(parts, recent), now).share()
    took = recent[-1][1].written - recent[0][1].written if recent else 0.0
    responses = sum(part.counts.responses for part, _ in recent[1:])
    going = took > 0 and not complete
    return RunStatus(
        model=str(manifest.identity.get("model")),
        files=len(manifest.files),
        complete=complete,
        share=done,
        parts=len(parts),
        **counts._asdict(),
        responses=counts.responses,
        last_part_ago=max(0.0, now - recent[-1][1].written) if recent else None,
        responses_per_s=responses / took if going else None,
        strays=tuple(strays),
        empty=tuple(empty),
        eta=took * (1 - done) / (done - before) if going and done > before else None,
        made_up=is_fake(manifest),
    )


def _before(parts: Sequence[Part], recent: Sequence[tuple[Part, Entry]]) -> list[Part]:
    """The parts up to the first of the recent ones: the rate is measured from its time to that of the last."""
    later = {part for part, _ in recent[1:]}
    return [part for part in parts if part not in later]
