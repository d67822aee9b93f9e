"""The second job: a scored corpus in, the rows that meet a condition out. It costs no GPU, and can be run again at will.

1. Check the condition, the scored folder and the output folders.
2. Read the parts, group by group; write what meets the condition to a file per group, and the rest to another.
3. Check that every response went one way or the other, and say so in `filter.json`.

What is written doesn't depend on how many workers there are: groups of parts are cut by their names and sizes alone.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ray

from actors.errors import AssayError, AuditError, RunStopped, SourceError
from pipelines import kept_folder, storage
from pipelines.expressions import Condition
from pipelines.filter_step import FilterStep, Group, KeepSummary, filter_group
from pipelines.kept_files import Target
from pipelines.manifest import NAME, Manifest, read_manifest
from pipelines.parts import Counts, Part, Parts, audit, by_file, gaps
from pipelines.session import ray_session
from pipelines.settings import FilterSettings
from pipelines.sources import Range
from pipelines.storage import Entry, told

__all__ = ["KeepSummary", "keep"]

_GROUP_BYTES = 64 * 2**20
_GROUP_PARTS = 256
_TASKS = 1000
"""Tasks given to Ray at a time. They wait there for a CPU, and a cluster that can grow sees how many are asked for."""


def keep(settings: FilterSettings) -> KeepSummary:
    """Filter a scored corpus.

    Raises a `UserError` if the condition, the scored folder or an output folder won't do, `RunStopped` if a worker was
    lost for good, and `AuditError` if the parts aren't what their names say or a response went neither way.
    """
    manifest = _scored_manifest(settings.scored)
    condition = Condition.check(settings.keep, manifest.columns)
    parts, expected = _audited(settings, manifest)
    step = _step(settings, manifest, condition)
    kept_folder.check_apart([settings.scored, *(target.folder for target in step.targets)])
    for target in step.targets:
        target.check()
        kept_folder.check_free(target.folder, settings.overwrite)
    documents = {target.folder: _document(settings, manifest, target) for target in step.targets}
    for folder, document in documents.items():
        kept_folder.start(folder, document)
    summary = sum(_summaries(step, list(_groups(parts))), KeepSummary())
    if not summary.responses == expected.responses == summary.kept + sum(summary.not_kept.values()):
        raise AuditError(f"the parts hold {expected.responses} responses by their names, and the filter saw {summary}")
    for folder, document in documents.items():
        kept_folder.finish(folder, document, summary.as_json())
    return summary


def _scored_manifest(folder: str) -> Manifest:
    manifest = read_manifest(folder)
    if manifest is None:
        raise SourceError(f"{folder} isn't there, or has no {NAME}; a filter takes the output folder of a scored corpus")
    return manifest


def _audited(settings: FilterSettings, manifest: Manifest) -> tuple[list[tuple[Part, Entry]], Counts]:
    """The parts with their files, and the counts in their names. Nothing may be there twice, and only `partial` allows gaps."""
    try:
        entries = sorted(Parts(settings.scored).entries())
        extents = Parts(settings.scored).extents(manifest.files)
    except OSError as error:
        raise SourceError(f"{settings.scored} can't be read: {told(error)}") from error
    parts = [part for part, _ in entries]
    _audit_without_gaps(manifest, extents, parts)
    if not settings.partial:
        try:
            audit(manifest.files, extents, parts)
        except AuditError as error:
            raise SourceError(
                f"{settings.scored} isn't complete: {error}\n"
                "The same `score` command goes on with it; --partial filters what is there"
            ) from error
    return entries, sum((part.counts for part in parts), Counts())


def _audit_without_gaps(manifest: Manifest, extents: Mapping[int, int | None], parts: Sequence[Part]) -> None:
    """The audit with the gaps filled: whatever it finds now is there twice, or doesn't belong there."""
    ranges = {index: [part.range for part in own] for index, own in by_file(parts).items()}
    ends = {file.index: extents[file.index] or max(ranges.get(file.index, [Range(0, 0)])).end for file in manifest.files}
    missing = [(index, gap) for index, end in ends.items() for gap in gaps(ranges.get(index, []), end)]
    fillers = [Part(index, gap, Counts(rows=gap.end - gap.start)) for index, gap in missing]
    audit(manifest.files, ends, sorted([*parts, *fillers]))


def _step(settings: FilterSettings, manifest: Manifest, condition: Condition) -> FilterStep:
    columns = manifest.columns
    form = settings.format or ("jsonl" if columns.is_json else "parquet")
    metadata = {"assay": json.dumps({"identity": manifest.identity, "condition": settings.keep})}
    # The reason why is one more column beside ours, so the rest always has these.
    taken = {name.lower() for name in columns.schema.names}
    why = next(name for name in (f"{columns.prefix}why", "assay_why") if name.lower() not in taken)
    # Absolute, because a worker's folder may be another one.
    output, other = (path and storage.absolute(path) for path in (settings.output, settings.rest))
    kept = output and Target(output, "kept", form, columns, settings.fields, None, metadata)
    rest = other and Target(other, "rest", form, columns, True, why, metadata)
    return FilterStep(Parts(storage.absolute(settings.scored)), columns, condition, kept or None, rest or None)


def _document(settings: FilterSettings, manifest: Manifest, target: Target) -> dict[str, Any]:
    identity = json.dumps([manifest.identity, [file.as_json() for file in manifest.files]], sort_keys=True)
    return {
        "holds": target.stem,
        "condition": settings.keep,
        "settings": settings.model_dump(mode="json"),
        "format": target.format,
        "why": target.why,
        "source": {
            "folder": storage.absolute(settings.scored),
            "identity": manifest.identity,
            "made_with": manifest.made_with,
            "fingerprint": f"sha256:{hashlib.sha256(identity.encode()).hexdigest()}",
        },
    }


def _groups(parts: Iterable[tuple[Part, Entry]]) -> Iterator[Group]:
    """Neighbouring parts, up to a size and a number that make a file of a useful size."""
    index, size, group = 0, 0, list[Part]()
    for part, entry in parts:
        if group and (size + entry.size > _GROUP_BYTES or len(group) == _GROUP_PARTS):
            yield Group(index, tuple(group))
            index, size, group = index + 1, 0, []
        size += entry.size
        group.append(part)
    if group:
        yield Group(index, tuple(group))


def _summaries(step: FilterStep, groups: Sequence[Group]) -> Iterator[KeepSummary]:
    """Filter all groups. For one alone, starting Ray would take longer than the work."""
    if len(groups) < 2:
        yield from (filter_group(step, group) for group in groups)
        return
    with ray_session():
        yield from _on_ray(step, groups)


def _on_ray(step: FilterStep, groups: Sequence[Group]) -> Iterator[KeepSummary]:
    task, shared = ray.remote(filter_group), ray.put(step)
    running: list[Any] = []
    try:
        for group in groups:
            if len(running) == _TASKS:
                done, running = ray.wait(running)
                yield from ray.get(done)
            running.append(task.remote(shared, group))
        while running:
            done, running = ray.wait(running)
            yield from ray.get(done)
    except ray.exceptions.RayError as error:
        for waiting in running:
            ray.cancel(waiting)
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, AssayError) else RunStopped(f"a filter task failed: {error}")) from error
