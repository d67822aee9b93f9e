"""The filter job: from a scored corpus to files of the responses worth keeping. Needs no GPU, and can be run repeatedly.

1. Check the settings, the scored folder and the output folders.
2. For a selection over the whole corpus, find its boundary or its winners (`selection`).
3. Count what will be kept, and cut the parts into outputs that make files of a useful size.
4. Write the outputs, kept rows and the rest. A filter that was killed resumes with the outputs that aren't done.
5. Check that every response was either kept or counted with a reason, and commit the counts in `filter.json`.

The output doesn't depend on the number of workers: work is cut by the names and sizes of the parts alone.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa

from actors.errors import AuditError, OutputError, SettingsError, UserError
from actors.text.visible import code
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import FILTER
from pipelines.data.storage.lease import check_held, lease, ticket
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.columns import REWARD, Columns
from pipelines.folders.run_folder.dataset_card import MADE_UP, write_card, write_unfinished_card
from pipelines.folders.run_folder.json_lines import has_json
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.member_runs import is_fake
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, PartEntries, open_scored
from pipelines.folders.scored_corpus.shuffle import cut
from pipelines.results.filtering.filter_step import (
    FilterStep,
    FilterSummary,
    Group,
    NumberedPart,
    ResponseEvaluator,
    filter_group,
)
from pipelines.results.filtering.labels import labels_hash
from pipelines.results.filtering.response_rows import ResponseRows
from pipelines.results.filtering.selection import Chosen, choose
from pipelines.results.filtering.writers import Target
from pipelines.run.runtime.workers import Workers, workers
from pipelines.settings.filter_settings import ChoiceSettings, FilterSettings, LabelledChoiceSettings
from pipelines.settings.recipe import write_recipe

__all__ = ["FilterSummary", "keep"]

_GROUP_BYTES, _GROUP_PARTS = 64 * 2**20, 256  # bounds of what one task of a pass reads: bytes, and parts if they are tiny
_OUTPUT_BYTES = 64 * 2**20  # about the size of an output file, in bytes of the scored parts, which are compressed
_LEAST_SHARE = 1 / 64  # of a smaller share, files are smaller: one task shouldn't read more than 64 x 64 MiB = 4 GiB


def keep(settings: FilterSettings, note: Callable[[str], object] = lambda text: None) -> FilterSummary:
    """Filter a scored corpus, or resume an interrupted filter of the same settings. One that is complete is only noted.

    Raises a `UserError` if the settings, the scored folder or an output folder are unusable, `RunStopped` if a worker was
    lost for good, and `AuditError` if a part doesn't hold what its name says, or a response was neither kept nor counted.
    """
    check(settings)
    if (finished := read_finished_filter(settings)) is not None:
        note(f"nothing to do, {settings.output} holds it")
        return finished
    corpus = open_scored(settings.scored, "filter", partial=settings.partial)
    evaluator = _check_columns(settings, corpus.manifest.columns)
    folders = _folders(settings)
    output_folder.check_apart([corpus.folder, *folders])
    groups = groups_of(corpus.entries)
    with ExitStack() as stack, workers(len(groups)) as pool:
        for folder in folders:
            stack.enter_context(lease(folder))
        folders = _unfinished(settings, corpus)
        for folder in folders:
            output_folder.check_free(folder, settings.overwrite)
        step = FilterStep(corpus.responses, corpus.manifest.columns, evaluator)
        chosen, selection = None, None
        if evaluator.ranking:
            chosen = stack.enter_context(choose(pool, settings, [(step, group) for group in groups]))
            selection = {"by": settings.by or step.columns.prefix + REWARD, **chosen.as_json()}
        # Counted first, to size the files: a filter that keeps 1 % would leave a hundred times as many tiny ones. A single
        # group makes a single output, whatever is kept of it: it needn't be counted before it is written.
        counted = None
        if len(groups) != 1 or not folders:
            counted = sum(_run_pass(pool, step, chosen, dict(enumerate(groups))).values(), FilterSummary())
            if not folders:
                return _audit(settings, corpus, counted, selection)
        targets = tuple(target for target in _targets(settings, corpus.manifest) if target.folder in folders)
        outputs = _plan_outputs(settings, corpus, counted)
        documents = {target.folder: _document(settings, corpus, target, outputs, selection) for target in targets}
        written = _write_outputs(pool, replace(step, targets=targets), chosen, outputs, documents)
        # Passes read the parts twice: a part that was replaced or damaged in between shows here.
        if counted not in (None, written):
            raise AuditError(f"what was written isn't what was counted before: {written}, {counted}")
        summary = _audit(settings, corpus, written, selection)
        # `finish` commits a folder: until then it is unfinished, and a filter of the same settings resumes it.
        check_held()
        for target in targets:
            write_recipe(target.folder, filter=settings)
            _write_card(target, corpus, settings, None if summary.mixed else target.written)
            output_folder.finish(target.folder, documents[target.folder], summary.as_json(), made_of=corpus.made_of)
    return summary


def _audit(
    settings: FilterSettings, corpus: OpenedCorpus, summary: FilterSummary, selection: Mapping[str, Any] | None
) -> FilterSummary:
    """The summary with what is of the whole run.

    Raises `AuditError` unless each response is kept or counted with a reason.
    """
    # The counts, the names of the parts and the reasons: three numbers must agree.
    if not summary.responses == corpus.total == summary.kept + sum(summary.not_kept.values()):
        raise AuditError(f"{settings.scored} holds {corpus.total} responses by its notes, and the filter saw {summary}")
    manifest, counts = corpus.manifest, corpus.counts
    several = not manifest.columns.drawn and counts.responses > counts.rows
    return replace(summary, selection=selection, made_up=is_fake(manifest), several=several)


def _run_pass(
    pool: Workers, step: FilterStep, chosen: Chosen | None, groups: Mapping[int, Group]
) -> dict[int, FilterSummary]:
    """Count what is kept of groups, or write it, too, if the step has targets. Returns the counts of each, by its number.

    Tasks end in any order, and each may run again: a file has its name from the number of its group.
    """
    # Made as the tasks start, since the winners of all groups may be too many for this process.
    arguments = (
        (step, chosen.selection(group[0].number, group[-1].number) if chosen else None, number, group)
        for number, group in groups.items()
    )
    return dict(pool.map(filter_group, arguments))


def _write_outputs(
    pool: Workers, step: FilterStep, chosen: Chosen | None, outputs: Sequence[Group], documents: Mapping[str, Any]
) -> FilterSummary:
    notes_by_folder = [output_folder.start(folder, document) for folder, document in documents.items()]
    for folder in documents:
        write_unfinished_card(folder, "filter")
    written = dict[int, FilterSummary]()
    for number in range(len(outputs)):
        # An output is done if it is noted in all folders (one or two): somebody may have deleted one of them.
        notes = [notes.get(output_folder.result_name(number)) for notes in notes_by_folder]
        counts = None if None in notes else FilterSummary.read(notes[0] or {})
        if counts is not None:
            written[number] = counts
    missing = {number: group for number, group in enumerate(outputs) if number not in written}
    written |= _run_pass(pool, step, chosen, missing)
    return sum(written.values(), FilterSummary())


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


def read_finished_filter(settings: FilterSettings) -> FilterSummary | None:
    """The counts of a filter that is complete for the scored folder as it is now; None if there is something left to do.

    Complete means: by the same settings and labels, the same run and the same parts, in all of its folders.
    """
    if settings.output is None or _unfinished(settings):
        return None
    document = FILTER.read(storage.absolute(settings.output))
    return FilterSummary.read(document["summary"]) if document else None


def _unfinished(settings: FilterSettings, corpus: OpenedCorpus | None = None) -> list[str]:
    """The folders that aren't complete. A kill between the commits of two leaves one so, which stays as it is."""
    folders = _folders(settings)
    if settings.overwrite:
        return folders
    try:
        corpus = corpus or open_scored(settings.scored, "filter", partial=settings.partial)
    except UserError:  # the scored folder doesn't exist yet, or isn't complete
        return folders
    made_from = _recorded(settings), corpus.manifest.fingerprint, corpus.made_of
    return [folder for folder in folders if output_folder.read_finished(folder, *made_from) is None]


def groups_of(entries: PartEntries) -> list[Group]:
    """Groups of neighbouring parts, bounded by size and number: what one task of a pass reads.

    Parts are numbered through all groups, in the order of the corpus: by these numbers a selection knows its winners.
    """
    return _number(cut(entries, _GROUP_BYTES, _GROUP_PARTS))


def _plan_outputs(settings: FilterSettings, corpus: OpenedCorpus, counted: FilterSummary | None) -> list[Group]:
    """The parts of each output. They are cut by what will be written of them to the fuller of the folders, about.

    Without counts, all of it is written.
    """
    share = corpus.share
    if counted is not None and counted.responses:
        kept = counted.kept / counted.responses
        share *= max(kept if settings.output else 0.0, 1 - kept if settings.rest else 0.0)
    return _number(cut(corpus.entries, int(_OUTPUT_BYTES / max(share, _LEAST_SHARE)), len(corpus.entries)))


def _number(groups: Iterable[Sequence[Part]]) -> list[Group]:
    numbers = itertools.count()
    return [tuple(NumberedPart(next(numbers), part) for part in group) for group in groups]


def check(settings: ChoiceSettings) -> None:
    """Raise `SettingsError` if settings contradict each other, or filter nothing.

    What needs the corpus, such as the names in an expression, is checked once its columns are known.
    """
    selections = settings.selections
    flags = [f"--{name.replace('_', '-')}" for name in selections]
    if len(selections) > 1:
        raise SettingsError(f"{' and '.join(flags)} don't go together: choose one, and put conditions into --where")
    if not selections and settings.where is None:
        raise SettingsError("there is nothing to filter by: give --where, --top-fraction, --quantile, --top-k or --labels")
    if not selections and settings.by is not None:
        raise SettingsError("--by is what --top-fraction, --quantile, --top-k and --labels choose by: give one of them")
    if isinstance(settings, LabelledChoiceSettings):
        aims = [f"--{name}" for name in ("precision", "recall") if getattr(settings, name) is not None]
        if bool(aims) != (settings.labels is not None):
            raise SettingsError(
                f"{aims[0]} goes with --labels" if aims else "--labels goes with --precision, --recall or both: give one"
            )
    if settings.top_k is None and (settings.per is not None or settings.min_gap is not None):
        raise SettingsError(f"--{'per' if settings.per else 'min-gap'} goes with --top-k")


def _folders(settings: FilterSettings) -> list[str]:
    return [storage.absolute(folder) for folder in (settings.output, settings.rest) if folder is not None]


def check_ahead(settings: FilterSettings, columns: Columns) -> None:
    """Raise a `UserError` if a filter can't be done with a corpus of such columns, which needn't exist yet."""
    check(settings)
    _check_columns(settings, columns)
    for folder in _unfinished(settings):
        output_folder.check_free(folder, settings.overwrite)


def _check_columns(settings: FilterSettings, columns: Columns) -> ResponseEvaluator:
    """Raise a `UserError` if a filter can't be done with such columns. Returns the evaluator of its expressions."""
    output_folder.check_apart([settings.scored, *_folders(settings)])
    file_format = _format(settings, columns)
    if settings.rows == "responses" and file_format == "parquet" and columns.is_json:
        raise SettingsError(
            "--rows responses --format parquet is for Parquet input: fields of JSON rows may have values of any type, which "
            "a column can't hold; leave out --format, or --rows"
        )
    writes_rows = settings.rest is not None or (settings.output is not None and settings.rows == "rows")
    bad = [field for field in columns.carried if not has_json(field.type)]
    # Of responses alone, such a field is left out and counted; whole rows must be whole.
    if writes_rows and bad and file_format == "jsonl" and not columns.is_json:
        raise OutputError(
            f"JSONL can't hold the column {bad[0].name!r}, which is {bad[0].type}; leave the format at parquet"
        )
    return ResponseEvaluator.of(settings, columns.prefix, columns.ours_first, within_row=columns.within_row)


def _format(settings: FilterSettings, columns: Columns) -> Any:
    return settings.format or ("jsonl" if columns.is_json else "parquet")


def _targets(settings: FilterSettings, manifest: Manifest) -> tuple[Target, ...]:
    """The sides to write, under the leases of their folders."""
    columns = manifest.columns
    file_format = _format(settings, columns)
    metadata = {"assay": json.dumps({"identity": manifest.identity, "filter": _describe(settings)})}
    targets = list[Target]()
    if settings.output is not None:
        folder = storage.absolute(settings.output)
        fields, to_parquet = settings.fields, file_format == "parquet"
        responses = ResponseRows.of(manifest, fields, to_parquet=to_parquet) if settings.rows == "responses" else None
        targets.append(Target(folder, "kept", file_format, columns, fields, None, metadata, responses, ticket(folder)))
    if settings.rest is not None:
        folder = storage.absolute(settings.rest)
        # The reason is one more column beside ours, so the rest is written with our columns whatever `fields` says.
        names = {name.lower() for name in columns.schema.names}  # DuckDB takes names that differ in case for the same
        why = next(name for name in (f"{columns.prefix}why", "assay_why") if name.lower() not in names)
        targets.append(Target(folder, "rest", file_format, columns, True, why, metadata, None, ticket(folder)))
    return tuple(targets)


def _describe(settings: FilterSettings) -> str:
    # In one line, for the card and for messages: with the settings alone that decide what is kept.
    labels = ("labels", "precision", "recall", "confidence") if settings.labels else ()
    rows = ("rows",) if settings.rows != "rows" else ()
    names = ("where", "by", "top_fraction", "quantile", "top_k", *labels, "per", "min_gap", *rows)
    return ", ".join(f"{name}: {value}" for name in names if (value := getattr(settings, name)) is not None)


def _recorded(settings: FilterSettings) -> dict[str, Any]:
    # With a hash of the labels: others may have been put in the file's place.
    labels = {} if settings.labels is None else {"labels_hash": labels_hash(settings.labels)}
    return settings.model_dump(mode="json") | labels


def _document(
    settings: FilterSettings,
    corpus: OpenedCorpus,
    target: Target,
    outputs: Sequence[Group],
    selection: Mapping[str, Any] | None,
) -> dict[str, Any]:
    parts = [[numbered.part.name for numbered in group] for group in outputs]
    return {
        "holds": target.stem,
        "description": _describe(settings),
        "settings": _recorded(settings),
        "selection": selection,
        "format": target.format,
        "why": target.why,
        # Rows that only Parquet's readers take: `score` needs the fields, which are inside the records.
        "raw_records": target.format == "parquet" and target.columns.is_json,
        "firsts": [names[0] for names in parts],
        # A hash, as a million names would be 80 MB: outputs are cut by the parts, so with others none of them counts.
        "source": {**corpus.source, "parts": f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"},
    }
