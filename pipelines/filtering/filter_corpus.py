"""The second job: a scored corpus in, what is worth keeping out. It costs no GPU, and can be run again at will.

1. Check the settings, the scored folder and the output folders.
2. Where the best of all are asked for, find out who they are, by passes over the columns that this needs (`passes`).
3. Count what will be kept of each group of parts, and put groups together that make files of a useful size.
4. Write these files, kept rows and others. A filter that was killed goes on with the files that aren't there.
5. Check that every response went one way or the other, and say so in `filter.json`.

What is written doesn't depend on how many workers there are: all is cut by the parts' names and sizes alone.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from actors.errors import AuditError, SettingsError, UserError
from pipelines import storage
from pipelines.filtering import passes
from pipelines.filtering.filter_step import (
    FilterStep,
    Group,
    KeepSummary,
    Numbered,
    Output,
    ResponseEvaluator,
    Selection,
    filter_group,
)
from pipelines.filtering.writers import Target
from pipelines.runtime.workers import Workers, workers
from pipelines.scored_corpus import output_folder
from pipelines.scored_corpus.columns import REWARD, Columns
from pipelines.scored_corpus.manifest import Manifest
from pipelines.scored_corpus.member_runs import is_fake
from pipelines.scored_corpus.parts import Counts, Part, Parts
from pipelines.scored_corpus.scored_folder import audit_parts, read_scored_manifest
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import ChoiceSettings, FilterSettings
from pipelines.storage import Entry
from pipelines.storage.lease import lease

__all__ = ["KeepSummary", "keep"]

_GROUP_BYTES = 64 * 2**20
_GROUP_PARTS = 256
_OUTPUT_BYTES = 64 * 2**20
"""About what an output file holds, in bytes of the scored parts, which are compressed."""

_SELECTIONS = ("top_fraction", "quantile", "top_k")


def keep(settings: FilterSettings) -> KeepSummary:
    """Filter a scored corpus, or go on where an earlier filter of the same settings ended.

    Raises a `UserError` if the settings, the scored folder or an output folder won't do, `RunStopped` if a worker was
    lost for good, and `AuditError` if the parts aren't what their names say or a response went neither way.
    """
    check(settings)
    manifest = read_scored_manifest(settings.scored)
    step = _step(settings, manifest)
    entries = audit_parts(settings.scored, manifest, settings.partial)
    expected = sum((part.counts for part, _ in entries), Counts())
    _check_targets(settings, step)
    sizes = {part: entry.size for part, entry in entries}
    groups = list(_groups(entries))
    with ExitStack() as held, workers(len(groups)) as hands:
        for target in step.targets:
            held.enter_context(lease(target.folder))
            output_folder.check_free(target.folder, settings.overwrite)  # another filter may have ended just now
        step = step.held()
        work = _Work(hands, step, settings, groups)
        looked = work.look() if len(groups) > 1 or not step.targets else None
        summary = sum(looked.values(), KeepSummary()) if looked is not None else None
        if step.targets:
            outputs = passes.plan_outputs(groups, list(_sizes(step, groups, looked, sizes)), _OUTPUT_BYTES)
            documents = {target.folder: _document(settings, manifest, target, outputs, work) for target in step.targets}
            done = [output_folder.start(folder, document) for folder, document in documents.items()]
            # An output is done if all its files are: somebody may have deleted one of the folders.
            noted = done[0].keys() & done[-1].keys()
            written = {
                output.index: KeepSummary(**done[0][number])
                for output in outputs
                if (number := output_folder.numbered(output.index)) in noted
            }
            written |= work.write([output for output in outputs if output.index not in written])
            if summary not in (None, total := sum(written.values(), KeepSummary())):
                raise AuditError(f"what was written isn't what was counted before: {total}, {summary}")
            summary = total
        assert summary is not None
        if not summary.responses == expected.responses == summary.kept + sum(summary.not_kept.values()):
            raise AuditError(f"the parts hold {expected.responses} responses by their names, and the filter saw {summary}")
        summary = replace(summary, selection=work.told, made_up=is_fake(manifest))
        if step.targets:
            for folder, document in documents.items():
                write_recipe(folder, filter=settings)
                output_folder.finish(folder, document, summary.as_json(), made_of=output_folder.parts_fingerprint(entries))
    return summary


def read_finished_filter(settings: FilterSettings) -> KeepSummary | None:
    """What came of a filter whose output is there, of the scored folder as it is; None if there is something to do."""
    if settings.overwrite or settings.output is None:
        return None
    try:
        manifest = read_scored_manifest(settings.scored)
        source = (
            manifest.fingerprint,
            output_folder.parts_fingerprint(audit_parts(settings.scored, manifest, settings.partial)),
        )
    except UserError:  # it isn't there yet, or isn't complete
        return None
    asked = settings.model_dump(mode="json")
    folders = [folder for folder in (settings.output, settings.rest) if folder is not None]
    there = [output_folder.read_finished(folder, asked, *source) for folder in folders]
    return None if None in there or there[0] is None else KeepSummary(**there[0])


class _Work:
    """The passes over the groups. What is selected is found out at the start."""

    def __init__(self, hands: Workers, step: FilterStep, settings: FilterSettings, groups: Sequence[Group]) -> None:
        self._hands = hands
        self._step = step
        self._groups = groups
        self._selection: Selection | None = None
        self._won: dict[Group, list[Any]] = {}
        self.told: Mapping[str, Any] | None = None
        by = settings.by or step.columns.prefix + REWARD
        looking = step.without_targets()
        sources = [passes.Source(looking, group, group.parts[0].number) for group in groups]
        if settings.top_k is not None:
            won = passes.winners(hands, settings, sources)
            self._won = dict(zip(groups, won, strict=True))
            self.told = {"by": by, "top_k": settings.top_k, "per": settings.per or "prompt", "min_gap": settings.min_gap}
        elif step.judge.ranking:
            cut = passes.boundary(hands, settings, sources)
            self._selection = cut
            self.told = {"by": by, **cut.as_json()}

    def look(self) -> dict[int, KeepSummary]:
        """What is kept of each group, by its place."""
        return self._filter(self._step.without_targets(), [Output(at, (own,)) for at, own in enumerate(self._groups)])

    def write(self, outputs: Sequence[Output]) -> dict[int, KeepSummary]:
        """Write outputs; what is kept of each, by its number."""
        return self._filter(self._step, outputs)

    def _filter(self, step: FilterStep, outputs: Sequence[Output]) -> dict[int, KeepSummary]:
        pieces = [itertools.chain.from_iterable(self._won.get(group, ()) for group in output.groups) for output in outputs]
        arguments = [(step, self._selection, output, *own) for output, own in zip(outputs, pieces, strict=True)]
        return dict(self._hands.map(_filter_output, arguments))


def _filter_output(step: FilterStep, selection: Selection | None, output: Output, *won: Any) -> tuple[int, KeepSummary]:
    return output.index, filter_group(step, passes.join_winners(won) if won else selection, output)


def _sizes(
    step: FilterStep, groups: Sequence[Group], looked: Mapping[int, KeepSummary] | None, sizes: Mapping[Part, int]
) -> Iterator[float]:
    """About how many bytes are written of each group, to the fuller of the folders."""
    for at, group in enumerate(groups):
        whole = sum(sizes[numbered.part] for numbered in group.parts)
        if looked is None or not looked[at].responses:
            yield whole
            continue
        share = looked[at].kept / looked[at].responses
        yield whole * max(share if step.kept else 0.0, 1 - share if step.rest else 0.0)


def check(settings: ChoiceSettings) -> None:
    """Raise `SettingsError` unless what is asked for goes together."""
    asked = [name for name in _SELECTIONS if getattr(settings, name) is not None]
    flags = [f"--{name.replace('_', '-')}" for name in asked]
    if len(asked) > 1:
        raise SettingsError(f"{' and '.join(flags)} don't go together: choose one, and put conditions into --keep")
    if not asked and settings.keep is None:
        raise SettingsError("there is nothing to filter by: give --keep, --top-fraction, --quantile or --top-k")
    if not asked and settings.by is not None:
        raise SettingsError("--by is what --top-fraction, --quantile and --top-k choose by: give one of them")
    if settings.top_k is None and (settings.per is not None or settings.min_gap is not None):
        raise SettingsError(f"--{'per' if settings.per else 'min-gap'} goes with --top-k")


def check_ahead(settings: FilterSettings, columns: Columns) -> None:
    """Raise a `UserError` for whatever will be wrong with a filter of a corpus that isn't there yet."""
    check(settings)
    _check_targets(settings, _step_of(settings, columns, {}, run=""))


def _check_targets(settings: FilterSettings, step: FilterStep) -> None:
    output_folder.check_apart([settings.scored, *(target.folder for target in step.targets)])
    for target in step.targets:
        target.check()
        output_folder.check_free(target.folder, settings.overwrite)


def _step(settings: FilterSettings, manifest: Manifest) -> FilterStep:
    return _step_of(settings, manifest.columns, manifest.identity, manifest.run)


def _step_of(settings: FilterSettings, columns: Columns, identity: Mapping[str, Any], run: str) -> FilterStep:
    form = settings.format or ("jsonl" if columns.is_json else "parquet")
    metadata = {"assay": json.dumps({"identity": identity, "filter": _asked(settings)})}
    # The reason why is one more column beside ours, so the rest always has these.
    taken = {name.lower() for name in columns.schema.names}
    why = next(name for name in (f"{columns.prefix}why", "assay_why") if name.lower() not in taken)
    output, other = (path and storage.absolute(path) for path in (settings.output, settings.rest))
    kept = output and Target(output, "kept", form, columns, settings.fields, None, metadata)
    rest = other and Target(other, "rest", form, columns, True, why, metadata)
    return FilterStep(
        Parts(storage.absolute(settings.scored), run),
        columns,
        ResponseEvaluator.of(settings, columns.prefix, columns.ours_first, within_row=columns.within_row),
        kept or None,
        rest or None,
    )


def _asked(settings: FilterSettings) -> str:
    """What is kept, in a line."""
    names = ("keep", "by", *_SELECTIONS, "per", "min_gap")
    return ", ".join(f"{name}: {value}" for name in names if (value := getattr(settings, name)) is not None)


def _document(
    settings: FilterSettings, manifest: Manifest, target: Target, outputs: Sequence[Output], work: _Work
) -> dict[str, Any]:
    parts = [[numbered.part.name for group in output.groups for numbered in group.parts] for output in outputs]
    return {
        "holds": target.stem,
        "asked": _asked(settings),
        "settings": settings.model_dump(mode="json"),
        "selection": work.told,
        "format": target.format,
        "why": target.why,
        "source": {
            "folder": storage.absolute(settings.scored),
            "run": manifest.run,
            "identity": manifest.identity,
            "made_with": manifest.made_with,
            "fingerprint": manifest.fingerprint,
            "parts": f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}",
        },
    }


def _groups(parts: Iterable[tuple[Part, Entry]]) -> Iterator[Group]:
    """Neighbouring parts, up to a size and a number: what a task reads."""
    size, group = 0, list[Numbered]()
    for number, (part, entry) in enumerate(parts):
        if group and (size + entry.size > _GROUP_BYTES or len(group) == _GROUP_PARTS):
            yield Group(tuple(group))
            size, group = 0, []
        size += entry.size
        group.append(Numbered(number, part))
    if group:
        yield Group(tuple(group))
