"""The progress of a run, from its folder alone: works on any machine that can read the folder."""

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from actors.errors import AuditError, SourceError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import describe
from pipelines.data.storage import Entry, error_text
from pipelines.data.storage.lease import Holding, read_holding
from pipelines.folders.run_folder.columns import REASON
from pipelines.folders.run_folder.coverage import audit
from pipelines.folders.run_folder.examples import Example, first_of_each
from pipelines.folders.run_folder.manifest import Manifest, read_manifest
from pipelines.folders.run_folder.member_runs import is_fake
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, is_empty, read_tables
from pipelines.folders.scored_corpus.unscored import part_examples
from pipelines.run.runtime.progress import Meter
from pipelines.settings import recipe
from pipelines.settings.rescore_settings import RETRIED

_RECENT_PARTS = 100  # the rate is that of the newest parts: the start's, with engines that load, would mislead
# Newest parts whose reasons are read while the run isn't complete, and how many at a time: a run may have a million.
_REASON_PARTS, _READERS = 200, 16


class RunState(StrEnum):
    """What becomes of a run, from its parts and its lease."""

    COMPLETE = "complete"
    """Everything is scored and summed up."""
    RUNNING = "running"
    """A process that shows signs of life holds the folder."""
    STOPPED = "stopped"
    """It ended early and gave the folder back: interrupted, or with an error."""
    DEAD = "dead"
    """The process that holds the folder is gone, or has shown no sign of life for a minute."""


@dataclass(frozen=True)
class RunHolder:
    """The process that holds the folder, or held it when it died. `since` is a Unix time, `last_sign_ago` in seconds."""

    host: str
    pid: int
    since: float
    last_sign_ago: float
    is_gone: bool
    """Whether its end is certain: it was a process of this machine, and there is none such any more."""

    @classmethod
    def of(cls, holding: Holding) -> "RunHolder":
        holder = holding.holder
        # Clocks of two machines may differ by more than the time since.
        ago = max(0.0, time.time() - holder.renewed)
        return cls(holder.host, holder.pid, holder.began, ago, holder.is_gone)


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
    empty: tuple[str, ...] = ()
    """Empty part files, whose rows will be scored again."""
    state: RunState = RunState.STOPPED
    holder: RunHolder | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    """Why responses have no reward, the most frequent reason first."""
    reasons_of_parts: tuple[int, int] = (0, 0)
    """Of how many parts the reasons are, and how many parts have responses without a reward."""
    examples: Sequence[Example] = ()
    """Of each reason some responses that have it, with what was wrong, or what a judge wrote."""
    recipe: str | None = None
    """The run's settings, which `assay run` takes; None of an evaluation's run, which has none."""
    retry: str | None = None
    """The command that ends a `retry` that didn't end."""


def status(folder: str) -> RunStatus:
    """The state of the run of a folder, whether running, stopped, dead or complete.

    Raises `SourceError` if it is no such folder.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise SourceError(
            f"{folder} {describe(folder)}, and `status` reads a scored corpus (the output folder of `score`, `ensemble`, "
            "`sample` or `refine`), or the result of `filter`, `choose`, `pairs`, `export` or `evaluate`"
        )
    run = Parts(folder, manifest.run)
    try:
        listed, extents = run.entries(), run.extents(manifest.files)
        holding, recipe_path = read_holding(folder), read_recipe_path(folder)
    except OSError as error:
        raise SourceError(f"{folder} can't be read: {error_text(error)}") from error
    now = time.time()
    empty = sorted(entry.name for _, entry in listed if is_empty(entry))
    # By time of writing, from which rate and remaining time follow; `parts` are in the order of the corpus.
    entries = sorted((pair for pair in listed if not is_empty(pair[1])), key=lambda pair: pair[1].written)
    parts = sorted(part for part, _ in entries)
    counts = sum((part.counts for part in parts), Counts())
    try:
        audit(manifest.files, extents, parts)
        complete = manifest.summary is not None
    except AuditError:
        complete = False
    # By bytes of the input, not by parts, whose sizes differ.
    done_share = Meter(manifest.files, parts, now).share()
    recent = entries[-_RECENT_PARTS:]
    earlier_share = Meter(manifest.files, _before(parts, recent), now).share()
    # The clock of the storage on both sides, so that the clock of this machine doesn't matter.
    recent_seconds = recent[-1][1].written - recent[0][1].written if recent else 0.0
    responses = sum(part.counts.responses for part, _ in recent[1:])
    state = state_of(complete, holding)
    is_going = recent_seconds > 0 and not complete
    reasons, reasons_of_parts, examples = _reasons(run, manifest, complete, [part for part, _ in entries])
    return RunStatus(
        model=str(manifest.identity.get("model")),
        files=len(manifest.files),
        complete=complete,
        share=1.0 if complete else done_share,
        parts=len(parts),
        **counts._asdict(),
        responses=counts.responses,
        last_part_ago=max(0.0, now - recent[-1][1].written) if recent else None,
        responses_per_s=responses / recent_seconds if is_going else None,
        empty=tuple(empty),
        eta=recent_seconds * (1 - done_share) / (done_share - earlier_share)
        if is_going and done_share > earlier_share
        else None,
        made_up=is_fake(manifest),
        state=state,
        holder=RunHolder.of(holding) if holding is not None else None,
        reasons=reasons,
        reasons_of_parts=reasons_of_parts,
        examples=examples,
        recipe=recipe_path,
        retry=None if complete else _unended_retry(folder, manifest),
    )


def _unended_retry(folder: str, manifest: Manifest) -> str | None:
    if not manifest.retries or manifest.retries[-1]["after"] is not None:
        return None
    reasons = ",".join(manifest.retries[-1]["reasons"])
    return shlex.join(["assay", "retry", folder, *(["--reasons", reasons] if reasons != ",".join(sorted(RETRIED)) else [])])


def state_of(complete: bool, holding: Holding | None) -> RunState:
    """What became of a run or a command, from whether all is there, and from its lease.

    A lease that is alive comes first: a complete run may be working again, at a retry or what is appended.
    """
    if holding is not None and holding.is_alive:
        return RunState.RUNNING
    if complete:
        return RunState.COMPLETE
    return RunState.STOPPED if holding is None else RunState.DEAD


def _reasons(
    run: Parts, manifest: Manifest, complete: bool, parts: Sequence[Part]
) -> tuple[dict[str, int], tuple[int, int], Sequence[Example]]:
    # Why responses have no reward: of a complete run from its summary, else from its newest parts (`parts`: oldest first).
    # With them, of how many parts they are and how many there are with such responses, and examples.
    without_reward = [part for part in parts if part.counts.rejected + part.counts.failed]
    if complete and manifest.summary is not None:
        examples = [Example(**each) for each in manifest.summary.get("examples", ())]
        return dict(manifest.summary["reasons"]), (len(without_reward), len(without_reward)), examples
    # The newest: they tell what goes wrong now.
    read = without_reward[-_REASON_PARTS:]
    column = manifest.columns.prefix + REASON
    with ThreadPoolExecutor(_READERS) as readers:
        of_parts = list(readers.map(lambda part: _part_reasons(run, part, column), read))
    counted = sum((reasons for reasons, _ in of_parts), Counter[str]())
    examples = first_of_each(example for _, of_part in of_parts for example in of_part)
    return dict(counted.most_common()), (len(read), len(without_reward)), examples


def _part_reasons(run: Parts, part: Part, column: str) -> tuple[Counter[str], Sequence[Example]]:
    # Nothing of a part that can't be read, as when it is being dropped: the run itself says so.
    try:
        tables, examples = list(read_tables(run.path(part), [column])), part_examples(run, part)
    except SourceError:
        return Counter(), ()
    return Counter(reason for table in tables for reason in table.column(0).to_pylist() if reason is not None), examples


def read_recipe_path(folder: str) -> str | None:
    """The path of the recipe in a folder; None if there is none."""
    names = {entry.name for entry in storage.folder(folder).entries()}
    return f"{folder.rstrip('/')}/{recipe.NAME}" if recipe.NAME in names else None


def _before(parts: Sequence[Part], recent: Sequence[tuple[Part, Entry]]) -> list[Part]:
    # The rate is measured from the first of the recent parts to the last, so the first one's work is none of it.
    later = {part for part, _ in recent[1:]}
    return [part for part in parts if part not in later]
