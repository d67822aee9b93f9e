"""Export jobs: from a scored corpus, prompt by prompt, to files of chosen candidates, pairs or rows for a trainer.

1. Check the scored folder and the output folder.
2. Cut the work into pieces: neighbouring parts if candidates are grouped by row. Grouped by prompt, equal prompts may be
   anywhere in the corpus: a shuffle (`scored_corpus.shuffle`) brings them into buckets, and each bucket is a piece.
3. Per piece: read the candidates back, make rows, write one file and note it as done. A job that was killed resumes with the
   pieces that aren't done.
4. Check that every response of the scored corpus was read exactly once, and commit the counts with the document.

The output doesn't depend on the number of workers.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from actors.errors import AuditError, OutputError, SettingsError, UserError
from actors.text.visible import code, markdown
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import OutputKind
from pipelines.data.storage.lease import Ticket, check_held, lease, ticket
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.columns import WITHIN_ROW, Columns
from pipelines.folders.run_folder.dataset_card import MADE_UP, write_card, write_unfinished_card
from pipelines.folders.run_folder.json_lines import encode
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus.candidates import Candidate
from pipelines.folders.scored_corpus.expressions import Condition
from pipelines.folders.scored_corpus.prompt_groups import Groups, group_by_prompt, groups_by_row
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, ResponsesOf, open_scored
from pipelines.folders.scored_corpus.shuffle import Shuffle, cut, plan_shuffle
from pipelines.results.exports import row_types
from pipelines.results.exports.export_counts import ExportedRows, ExportSummary, RowMaker, Tally
from pipelines.run.runtime.workers import workers
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.recipe import write_recipe

_BYTES = 64 * 2**20  # input bytes per output file, about: of the parts of a group, or of a bucket of prompts on average
_PARTS = 256  # parts per output file at most, where they are tiny: in a store each is a round trip of some 30 ms


@dataclass(frozen=True)
class ExportJob:
    """An export of a scored folder into an output folder, by the settings of its command.

    `description` says what it does in one line. `needs` are scores that the corpus must have. `reserved` are names under
    which no field of the input is carried into the rows. `trainer_plugin` is the plug-in that has the trainer's format.
    """

    kind: OutputKind
    settings: ChooseSettings | PairSettings | ExportSettings
    maker: RowMaker
    description: str
    # Responses in a group: all of a row, those of a row to the same prompt, or those of all rows to the same prompt.
    per: Literal["conversation", "row", "prompt"] = field(kw_only=True)
    needs: Sequence[str] = ()
    reserved: Sequence[str] = field(kw_only=True)
    trainer_plugin: str | None = None

    @property
    def output(self) -> str:
        return self.settings.output


@dataclass(frozen=True)
class StartedExport:
    """A job whose output folder exists and holds its document. Small and picklable: workers get it."""

    job: ExportJob
    reader: Reader
    source: ResponsesOf
    document: Mapping[str, Any]
    ticket: Ticket | None  # of the output folder's lease: workers check it before they commit a file


def carrying(job: ExportJob, reader: Reader, *, by_column: bool = False) -> Reader:
    """The reader whose candidates carry what the job's rows carry of the input.

    `by_column`: fields are columns of a dataset, and aren't parsed out of the row's record.
    """
    return reader.carrying(job.reserved, by_column=by_column) if job.settings.fields else reader


def check_ahead(job: ExportJob, columns: Columns) -> None:
    """Raise a `UserError` if a job can't be done with a corpus of such columns, which needn't exist yet."""
    _check_columns(job, columns)
    output_folder.check_free(job.output, job.settings.overwrite, job.kind)


def _check_columns(job: ExportJob, columns: Columns) -> None:
    check_comparable(job, columns)
    check_scores(job, columns)
    if job.settings.where is not None:
        Condition.check(job.settings.where, columns.ours_first)
    output_folder.check_apart([job.settings.scored, job.output])


def run_export(job: ExportJob, note: Callable[[str], object] = lambda text: None) -> ExportSummary:
    """Run an export, or resume one that was interrupted. One that is complete is only noted.

    Raises a `UserError` if a folder is unusable or another run writes there, `RunStopped` if a worker was lost for good, and
    `AuditError` if the parts don't hold what their names say.
    """
    corpus = _open(job)
    _check_columns(job, corpus.manifest.columns)
    reader = carrying(job, Reader.of(corpus.manifest, job.settings.where))
    if reader.made_up:
        refuse_made_up(job)
    # Once more: what was scored may lie elsewhere than the folder that was given, which may be a filter's result.
    output_folder.check_apart([corpus.folder, job.output])
    if (finished := read_finished_export(job)) is not None:
        note(f"nothing to do, {job.output} holds it")
        return finished
    with lease(job.output):
        return _run_pieces(job, corpus, reader)


def _open(job: ExportJob) -> OpenedCorpus:
    return open_scored(job.settings.scored, job.kind.name, partial=job.settings.partial)


def _run_pieces(job: ExportJob, corpus: OpenedCorpus, reader: Reader) -> ExportSummary:
    output_folder.check_free(job.output, job.settings.overwrite, job.kind)
    document = {"description": job.description, "settings": _document_settings(job), "source": corpus.source}
    try:
        notes = output_folder.start(job.output, document, job.kind)
        write_unfinished_card(job.output, job.kind.name)
        summaries = {number: ExportSummary.read(note) for number, note in notes.items()}
        written = {number: summary for number, summary in summaries.items() if summary is not None}
        step = StartedExport(job, reader, corpus.responses, document, ticket(job.output))
        make = _make_buckets if job.per == "prompt" else _make_pieces
        pieces = make(step, corpus, written)
        check_held()  # before the folder is finished: a successor may be at work in it
    except OSError as error:
        raise OutputError(f"{job.output} can't be written: {storage.error_text(error)}") from error
    summary = sum(pieces.values(), ExportSummary())
    # The names of parts state their counts (`audit_parts` has checked that these are complete). So a response that was read
    # twice or not at all, as by a fault in the buckets, shows here.
    expected = (corpus.counts.scored if corpus.kept is None else summary.candidates, corpus.total)
    if (summary.candidates, summary.candidates + summary.unscored) != expected:
        raise AuditError(f"{corpus.folder} holds {corpus.total} responses by its notes, and {summary.as_json()} was seen")
    mixed = summary.row_types == row_types.UNKNOWN
    summary = replace(summary, made_up=step.reader.made_up, mixed=mixed, taken=_taken(job, corpus))
    write_recipe(job.output, **{job.kind.name: _settings(job)})
    _write_card(job, corpus, summary)
    output_folder.finish(job.output, step.document, summary.as_json(), job.kind, made_of=corpus.made_of)
    return summary


def _write_card(job: ExportJob, corpus: OpenedCorpus, summary: ExportSummary) -> None:
    source, judge = code(job.settings.scored), code(str(corpus.manifest.identity.get("model")))
    about = f"{summary.rows:,} rows made of {source}, whose rewards are by {judge}, with {code(job.description)}."
    lines = [about, f"Taken: {markdown(summary.taken)}. `{job.kind.document}` has the counts."]
    lines += [MADE_UP] if summary.made_up else []
    # With the columns' types: `load_dataset` takes them from the first rows, and stops at a value that was null until then.
    write_card(job.output, job.kind.name, f"{job.kind.stems[0]}-*.jsonl", lines, row_types.schema_of(summary.row_types))


def _taken(job: ExportJob, corpus: OpenedCorpus) -> str:
    kept = f" that `filter` left in {job.settings.scored} ({corpus.kept.about})" if corpus.kept else ""
    return f"every response with a reward{kept}{f' for which {job.settings.where}' if job.settings.where else ''}"


def read_finished_export(job: ExportJob) -> ExportSummary | None:
    """The counts of a job that is complete for the scored folder as it is now; None if there is something left to do.

    Complete means: the output's document is of the same settings, the same run and the same parts.
    """
    if job.settings.overwrite:
        return None
    try:
        corpus = _open(job)
    except UserError:  # the scored folder doesn't exist yet, or isn't complete
        return None
    source = (corpus.manifest.fingerprint, corpus.made_of)
    summary = output_folder.read_finished(job.output, _document_settings(job), *source, job.kind)
    return None if summary is None else ExportSummary.read(summary)


def _make_pieces(
    step: StartedExport, corpus: OpenedCorpus, written: Mapping[str, ExportSummary]
) -> dict[str, ExportSummary]:
    """Make the pieces that aren't `written` yet. Returns the counts of all, by number and in order.

    For groups within a row: a row's responses lie in one part, so neighbouring parts are read as they are.
    """
    groups = cut(corpus.entries, _BYTES, _PARTS)
    pieces = {output_folder.result_name(number): group for number, group in enumerate(groups)}
    unwritten = [(step, number, parts) for number, parts in pieces.items() if number not in written]
    with workers(len(unwritten)) as pool:
        summaries = {**written, **dict(pool.map(_make_piece, unwritten))}
    return {number: summaries[number] for number in pieces}


def _make_buckets(
    step: StartedExport, corpus: OpenedCorpus, written: Mapping[str, ExportSummary]
) -> dict[str, ExportSummary]:
    """Shuffle the corpus by prompt, and make a piece of each bucket of prompts. Returns as `_make_pieces`."""
    work = [step.document, corpus.made_of]  # spilled files of other work aren't taken up again
    shuffle, groups = plan_shuffle(
        corpus, step.reader.reads, _BYTES, folder=_spill_folder(step.job), work=work, ticket=step.ticket
    )
    numbers = list(map(output_folder.result_name, range(shuffle.buckets)))
    unwritten = [(step, shuffle, bucket, number) for bucket, number in enumerate(numbers) if number not in written]
    summaries = dict(written)
    if unwritten:  # else a resumed export would read the whole corpus again to write nothing
        shuffle.open()
        missing = shuffle.missing()
        with workers(max(len(missing), len(unwritten))) as pool:
            for _ in pool.map(Shuffle.write, [(shuffle, number, groups[number]) for number in missing]):
                check_held()
            summaries |= dict(pool.map(_make_bucket, unwritten))
    shuffle.close()
    return {number: summaries[number] for number in numbers}


def _spill_folder(job: ExportJob) -> str:
    spill = None if isinstance(job.settings, ExportSettings) else job.settings.spill
    if spill is None:
        return storage.folder(storage.absolute(job.output)).sub("_shuffle").path
    # By the output's name: exports side by side don't meet there, and the next try finds its files again.
    mark = hashlib.sha256(storage.absolute(job.output).encode()).hexdigest()[:16]
    return storage.folder(storage.absolute(spill)).sub(f"assay-{mark}").path


def _make_bucket(step: StartedExport, shuffle: Shuffle, bucket: int, number: str) -> tuple[str, ExportSummary]:
    return _write_piece(step, number, group_by_prompt(step.reader.candidates(shuffle.read(bucket))))


def _make_piece(step: StartedExport, number: str, parts: Sequence[Part]) -> tuple[str, ExportSummary]:
    tables = (table for part in parts for table in step.source.tables(part, step.reader.reads))
    rows = step.reader.candidates(tables)
    return _write_piece(step, number, iter(rows) if step.job.per == "conversation" else groups_by_row(rows))


def _write_piece(step: StartedExport, number: str, groups: Groups) -> tuple[str, ExportSummary]:
    """Write the file of some groups, and note it as done. Returns its number and its counts."""
    job, tally, types = step.job, Tally(), row_types.RowTypes()
    name = f"{job.kind.stems[0]}-{number}.jsonl"
    folder = storage.folder(job.output)
    with folder.writing(name) as stream:
        for group in groups:
            candidates = [response for response in group if isinstance(response, Candidate)]
            exported = job.maker(candidates) if candidates else ExportedRows(())
            stream.writelines([encode(row) + b"\n" for row in exported.rows])
            tally.add(group, len(candidates), exported)
            types.add(exported.rows)
        # Inside the `with`, before the file is committed: a worker whose run lost the lease must not replace a file of the
        # run that holds it now.
        if step.ticket is not None:
            step.ticket.check()
    summary = tally.summary(types.text())
    if not summary.rows:
        folder.delete(name)
    # After the file: a piece that is noted as done has its file, and one killed in between is made again.
    output_folder.note_done(job.output, number, asdict(summary))
    return number, summary


def _document_settings(job: ExportJob) -> dict[str, Any]:
    # What decides the rows: another version of a plug-in neither holds to be made, nor resumes, what an earlier one wrote.
    return _settings(job) | ({"trainer_plugin": job.trainer_plugin} if job.trainer_plugin else {})


def _settings(job: ExportJob) -> dict[str, Any]:
    # Without those that don't decide what is written: the same export with another `spill` resumes.
    return job.settings.model_dump(mode="json", exclude={"overwrite", "spill"})


def refuse_made_up(job: ExportJob) -> None:
    """Raise `SettingsError` for a job on rewards of the fake engine, unless its settings allow them."""
    if not isinstance(job.settings, ChooseSettings) and not job.settings.fake_ok:
        raise SettingsError(
            f"the rewards of {job.settings.scored or 'this dataset'} are made up, by --engine fake, and `{job.kind.name}` "
            "writes for trainers: score with a real engine, or give --set fake_ok=true to try a pipeline out"
        )


def check_comparable(job: ExportJob, columns: Columns) -> None:
    """Raise `SettingsError` if responses of several rows would be compared by rewards that hold within a row only."""
    if job.per == "prompt" and columns.within_row:
        raise SettingsError(f"`{job.kind.name}` with --per prompt: {WITHIN_ROW}; give --per row")


def check_scores(job: ExportJob, columns: Columns) -> None:
    """Raise `SettingsError` if a corpus lacks scores that a job needs."""
    if missing := [name for name in job.needs if name not in columns.outputs]:
        raise SettingsError(
            f"`{job.kind.name}` with {job.description} needs the scores {', '.join(missing)}, which the corpus hasn't: "
            f"it has {', '.join(columns.outputs)}"
        )
