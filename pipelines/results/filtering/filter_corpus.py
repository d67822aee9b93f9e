"""The filter job: from a scored corpus to files of the responses worth keeping. Needs no GPU, and can be run repeatedly.

1. Check the settings, the scored folder and the output folders.
2. For a selection over the whole corpus, find its boundary or its winners (`selection`).
3. Count what will be kept of each group of parts, and combine groups into outputs that make files of a useful size.
4. Write the outputs, kept rows and the rest. A filter that was killed resumes with the outputs that aren't done.
5. Check that every response was either kept or counted with a reason, and commit the counts in `filter.json`.

The output doesn't depend on the number of workers: work is cut by the names and sizes of the parts alone.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from actors.errors import AuditError, SettingsError, UserError
from actors.text.visible import code
from pipelines.data import storage
from pipelines.data.storage import Entry
from pipelines.data.storage.lease import check_held, lease
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.columns import REWARD, Columns
from pipelines.folders.run_folder.dataset_card import MADE_UP, write_card, write_unfinished_card
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.member_runs import is_fake
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, ResponsesOf, open_scored, read_scored_manifest
from pipelines.results.filtering.filter_step import (
    FilterStep,
    Group,
    KeepSummary,
    NumberedPart,
    Output,
    ResponseEvaluator,
    Selection,
    filter_group,
)
from pipelines.results.filtering.response_rows import ResponseRows
from pipelines.results.filtering.selection import Chosen, choose
from pipelines.results.filtering.writers import Target
from pipelines.run.runtime.workers import Workers, workers
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import ChoiceSettings, FilterSettings

__all__ = ["KeepSummary", "keep"]

_GROUP_BYTES = 64 * 2**20
_GROUP_PARTS = 256
"""Bounds of a group: the bytes and the number of parts that one task of a pass reads."""
_OUTPUT_BYTES = 64 * 2**20
"""About the size of an output file, measured in bytes of the scored parts, which are compressed."""

_SELECTIONS = ("top_fraction", "quantile", "top_k")


def keep(settings: FilterSettings) -> KeepSummary:
    """Filter a scored corpus, or resume an interrupted filter of the same settings.

    Raises a `UserError` if the settings, the scored folder or an output folder are unusable, `RunStopped` if a worker was
    lost for good, and `AuditError` if a part doesn't hold what its name says, or a response was neither kept nor counted.
    """
    check(settings)
    # The settings are checked before the parts are, which takes longer.
    _check_targets(settings, _step(settings, read_scored_manifest(settings.scored, "filter")))
    corpus = open_scored(settings.scored, "filter", partial=settings.partial)
    output_folder.check_apart([corpus.folder, *_outputs(settings)])
    step = replace(_step(settings, corpus.manifest), source=corpus.responses)
    share = corpus.share
    sizes = {part: entry.size * share for part, entry in corpus.entries}
    groups = list(groups_of(corpus.entries))
    with ExitStack() as stack, workers(len(groups)) as pool:
        for target in step.targets:
            stack.enter_context(lease(target.folder))
            # Again, under the lease: another filter may have ended since.
            output_folder.check_free(target.folder, settings.overwrite)
        step = step.with_tickets()
        chosen, selection = None, None
        if step.evaluator.ranking:
            chosen = stack.enter_context(choose(pool, settings, [(step.without_targets(), group) for group in groups]))
            selection = {"by": settings.by or step.columns.prefix + REWARD, **chosen.as_json()}
        work = _SelectionPasses(pool, step, groups, chosen)
        # A single group makes a single output, whatever is kept of it: it needn't be counted before it is written.
        counts = work.count() if len(groups) > 1 or not step.targets else None
        summary = sum(counts.values(), KeepSummary()) if counts is not None else None
        if step.targets:
            # Groups are sized by what is read of them; outputs by what will be written, so that a filter that keeps 1 %
            # doesn't leave a hundred times as many tiny files.
            outputs = _plan_outputs(groups, list(_sizes(step, groups, counts, sizes)), _OUTPUT_BYTES)
            documents = {target.folder: _document(settings, corpus, target, outputs, selection) for target in step.targets}
            notes_by_folder = [output_folder.start(folder, document) for folder, document in documents.items()]
            for folder in documents:
                write_unfinished_card(folder, "filter")
            # An output is done if it is noted in all folders (one or two): somebody may have deleted one of them.
            done_numbers = notes_by_folder[0].keys() & notes_by_folder[-1].keys()
            written = {
                output.index: KeepSummary(**notes_by_folder[0][number])
                for output in outputs
                if (number := output_folder.result_name(output.index)) in done_numbers
            }
            written |= work.write([output for output in outputs if output.index not in written])
            # Passes read the parts twice: a part that was replaced or damaged in between shows here.
            if summary not in (None, total := sum(written.values(), KeepSummary())):
                raise AuditError(f"what was written isn't what was counted before: {total}, {summary}")
            summary = total
        assert summary is not None
        # Each response is kept or counted with a reason, and the parts hold what their names say: three numbers must agree.
        if not summary.responses == corpus.total == summary.kept + sum(summary.not_kept.values()):
            raise AuditError(f"{settings.scored} holds {corpus.total} responses by its notes, and the filter saw {summary}")
        summary = replace(summary, selection=selection, made_up=is_fake(corpus.manifest))
        if step.targets:
            # `finish` commits a folder: until then it is unfinished, and a filter of the same settings resumes it.
            check_held()
            for target in step.targets:
                folder, document = target.folder, documents[target.folder]
                write_recipe(folder, filter=settings)
                _write_card(target, corpus, settings, None if summary.mixed else target.written)
                output_folder.finish(folder, document, summary.as_json(), made_of=corpus.made_of)
    return summary


def _write_card(target: Target, corpus: OpenedCorpus, settings: FilterSettings, schema: pa.Schema | None) -> None:
    filter_text, model = code(_describe(settings)), code(str(corpus.manifest.identity.get("model")))
    selection = (
        f"is kept by {filter_text}"
        if target.stem == "kept"
        else f"isn't kept by {filter_text}, with the reason in `{target.why}`"
    )
    lines = [f"What {selection} of {code(settings.scored)}, whose rewards are by {model}.", "`filter.json` has the counts."]
    lines += [MADE_UP] if is_fake(corpus.manifest) else []
    write_card(target.folder, "filter", f"{target.stem}-*.{target.format}", lines, schema)


def read_finished_filter(settings: FilterSettings) -> KeepSummary | None:
    """The counts of a filter that is complete for the scored folder as it is now; None if there is something left to do."""
    if settings.overwrite or settings.output is None:
        return None
    try:
        corpus = open_scored(settings.scored, "filter", partial=settings.partial)
    except UserError:  # the scored folder doesn't exist yet, or isn't complete
        return None
    document, source = settings.model_dump(mode="json"), (corpus.manifest.fingerprint, corpus.made_of)
    summaries = [output_folder.read_finished(folder, document, *source) for folder in _outputs(settings)]
    return None if None in summaries or summaries[0] is None else KeepSummary(**summaries[0])


@dataclass(frozen=True)
class _SelectionPasses:
    """The passes of a filter over its groups, with what was `chosen` of the whole corpus."""

    pool: Workers
    step: FilterStep
    groups: Sequence[Group]
    chosen: Chosen | None

    def count(self) -> dict[int, KeepSummary]:
        """Count what is kept of each group, by its index."""
        outputs = [Output(index, (group,)) for index, group in enumerate(self.groups)]
        return self._filter(self.step.without_targets(), outputs)

    def write(self, outputs: Sequence[Output]) -> dict[int, KeepSummary]:
        """Write outputs; returns the counts of each, by its number."""
        return self._filter(self.step, outputs)

    def _filter(self, step: FilterStep, outputs: Sequence[Output]) -> dict[int, KeepSummary]:
        # Made as the tasks start, since the winners of all outputs may be too many for this process.
        arguments = ((step, self._selection(output), output) for output in outputs)
        return dict(self.pool.map(_filter_output, arguments))

    def _selection(self, output: Output) -> Selection | None:
        first, last = output.groups[0].parts[0], output.groups[-1].parts[-1]
        return self.chosen.selection(first.number, last.number) if self.chosen else None


def _filter_output(step: FilterStep, selection: Selection | None, output: Output) -> tuple[int, KeepSummary]:
    return output.index, filter_group(step, selection, output)


def groups_of(parts: Iterable[tuple[Part, Entry]]) -> Iterator[Group]:
    """Groups of neighbouring parts, bounded by size and number: what one task reads."""
    size, group = 0, list[NumberedPart]()
    for number, (part, entry) in enumerate(parts):
        if group and (size + entry.size > _GROUP_BYTES or len(group) == _GROUP_PARTS):
            yield Group(tuple(group))
            size, group = 0, []
        size += entry.size
        group.append(NumberedPart(number, part))
    if group:
        yield Group(tuple(group))


def _plan_outputs(groups: Sequence[Group], sizes: Sequence[float], target: float) -> list[Output]:
    """Combine neighbouring groups into outputs; `sizes` are the bytes that each will write, and `target` those of a file."""
    outputs: list[Output] = []
    neighbours, size = list[Group](), 0.0
    for group, group_size in zip(groups, sizes, strict=True):
        # A group that is larger than the target by itself is an output by itself: groups are never split.
        if neighbours and size + group_size > target:
            outputs.append(Output(len(outputs), tuple(neighbours)))
            neighbours, size = [], 0.0
        neighbours.append(group)
        size += group_size
    return [*outputs, Output(len(outputs), tuple(neighbours))] if neighbours else outputs


def _sizes(
    step: FilterStep, groups: Sequence[Group], counts: Mapping[int, KeepSummary] | None, sizes: Mapping[Part, float]
) -> Iterator[float]:
    """About how many bytes each group will write to the fuller of the folders, in bytes of the scored parts."""
    for index, group in enumerate(groups):
        scored_bytes = sum(sizes[numbered.part] for numbered in group.parts)
        if counts is None or not counts[index].responses:
            yield scored_bytes
            continue
        share = counts[index].kept / counts[index].responses
        yield scored_bytes * max(share if step.kept else 0.0, 1 - share if step.rest else 0.0)


def check(settings: ChoiceSettings) -> None:
    """Raise `SettingsError` if settings contradict each other, or filter nothing."""
    selections = [name for name in _SELECTIONS if getattr(settings, name) is not None]
    flags = [f"--{name.replace('_', '-')}" for name in selections]
    if len(selections) > 1:
        raise SettingsError(f"{' and '.join(flags)} don't go together: choose one, and put conditions into --keep")
    if not selections and settings.keep is None:
        raise SettingsError("there is nothing to filter by: give --keep, --top-fraction, --quantile or --top-k")
    if not selections and settings.by is not None:
        raise SettingsError("--by is what --top-fraction, --quantile and --top-k choose by: give one of them")
    if settings.top_k is None and (settings.per is not None or settings.min_gap is not None):
        raise SettingsError(f"--{'per' if settings.per else 'min-gap'} goes with --top-k")


def _outputs(settings: FilterSettings) -> list[str]:
    return [folder for folder in (settings.output, settings.rest) if folder is not None]


def check_ahead(settings: FilterSettings, columns: Columns) -> None:
    """Raise a `UserError` if a filter can't be done with a corpus of such columns, which needn't exist yet."""
    check(settings)
    _check_targets(settings, _step_of(settings, columns, {}, run=""))


def _check_targets(settings: FilterSettings, step: FilterStep) -> None:
    output_folder.check_apart([settings.scored, *(target.folder for target in step.targets)])
    for target in step.targets:
        if settings.rows == "rows" or target is not step.kept:  # rows of single responses hold only what JSON can
            target.check()
        output_folder.check_free(target.folder, settings.overwrite)


def _step(settings: FilterSettings, manifest: Manifest) -> FilterStep:
    step = _step_of(settings, manifest.columns, manifest.identity, manifest.run)
    if settings.rows == "rows" or step.kept is None:
        return step
    return replace(step, kept=replace(step.kept, responses=ResponseRows.of(manifest, settings.fields)))


def _step_of(settings: FilterSettings, columns: Columns, identity: Mapping[str, Any], run: str) -> FilterStep:
    file_format = settings.format or ("jsonl" if columns.is_json else "parquet")
    metadata = {"assay": json.dumps({"identity": identity, "filter": _describe(settings)})}
    # The reason is one more column beside ours, so the rest is written with our columns whatever `fields` says.
    names = {name.lower() for name in columns.schema.names}
    why = next(name for name in (f"{columns.prefix}why", "assay_why") if name.lower() not in names)
    kept_folder, rest_folder = (path and storage.absolute(path) for path in (settings.output, settings.rest))
    kept_target = kept_folder and Target(kept_folder, "kept", file_format, columns, settings.fields, None, metadata)
    rest_target = rest_folder and Target(rest_folder, "rest", file_format, columns, True, why, metadata)
    return FilterStep(
        ResponsesOf(Parts(storage.absolute(settings.scored), run)),
        columns,
        ResponseEvaluator.of(settings, columns.prefix, columns.ours_first, within_row=columns.within_row),
        kept_target or None,
        rest_target or None,
    )


def _describe(settings: FilterSettings) -> str:
    """The settings that decide what is kept, in one line."""
    names = ("keep", "by", *_SELECTIONS, "per", "min_gap", *(["rows"] if settings.rows != "rows" else []))
    return ", ".join(f"{name}: {value}" for name in names if (value := getattr(settings, name, None)) is not None)


def _document(
    settings: FilterSettings,
    corpus: OpenedCorpus,
    target: Target,
    outputs: Sequence[Output],
    selection: Mapping[str, Any] | None,
) -> dict[str, Any]:
    parts = [[numbered.part.name for group in output.groups for numbered in group.parts] for output in outputs]
    return {
        "holds": target.stem,
        "asked": _describe(settings),
        "settings": settings.model_dump(mode="json"),
        "selection": selection,
        "format": target.format,
        "why": target.why,
        # Rows that only Parquet's readers take: `score` needs the fields, which are inside the records.
        "raw_records": target.format == "parquet" and target.columns.is_json and target.responses is None,
        "firsts": [names[0] for names in parts],
        "source": {**corpus.source, "parts": f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"},
    }
