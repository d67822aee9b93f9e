"""What is made of a scored corpus, prompt by prompt: choices, pairs, rows for a trainer.

1. Check the scored folder, and the output folder.
2. Cut the work up: neighbouring parts where rows stand alone, or buckets of prompts where equal prompts may be anywhere.
3. Read the candidates back, make of them what was asked for, and write a file per piece of work. One that was killed goes on
   with the files that aren't there.
4. Say in the document what came of it: every scored candidate was looked at once.

What is written doesn't depend on how many workers there are.

Where rows stand alone it can be done while the corpus is still being scored: `begin` before the first part, `follow` for
each part as it is committed, and `run_export` at the end, which finds nothing left to do but to count.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import duckdb
import pyarrow as pa

from actors.errors import AuditError, OutputError, SettingsError, UserError
from pipelines import storage
from pipelines.corpus.corpus_files import Range
from pipelines.exports.read_back import Found, Reader
from pipelines.runtime.workers import workers
from pipelines.scored_corpus import output_folder
from pipelines.scored_corpus.candidates import Candidate, LabelAgreement, LeftOut
from pipelines.scored_corpus.columns import PROMPT_HASH, ROW, WITHIN_ROW, Columns
from pipelines.scored_corpus.expressions import Condition
from pipelines.scored_corpus.manifest import Manifest
from pipelines.scored_corpus.output_folder import OutputKind
from pipelines.scored_corpus.part_files import PART_AT, ROW_AT, in_order
from pipelines.scored_corpus.parts import Counts, Part, Parts, read_tables
from pipelines.scored_corpus.scored_folder import PartEntries, audit_parts, read_scored_manifest
from pipelines.scored_corpus.summary import readable
from pipelines.storage.lease import Ticket, lease, ticket

OWN = "kept"
"""The folder inside a sampled corpus for what `sample --keep` chooses."""

_BYTES = 64 * 2**20
_PARTS = 256
_BATCH_ROWS = 1024
_MOST_MEASURES = 100_000


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """What one group of candidates came to: rows to be written, and how often what wasn't, by why."""

    rows: Sequence[Mapping[str, Any]]
    left: Mapping[str, int] = field(default_factory=dict)
    measures: Sequence[float] = ()
    """The margins of its pairs."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """How its pairs, those that were left out for that too, go with the corpus' own labels: counts by `Agreement`."""


class RowMaker(Protocol):
    """Makes rows of the candidates that belong together. Small and picklable."""

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        """What they come to; `candidates` are in the order of the corpus, at least one."""


@dataclass(frozen=True)
class ExportSummary:
    """Counts: the candidates that were looked at, in how many groups (prompts or rows), and the rows made of them.

    `unscored` responses have no reward, and are none. `left` says why what wasn't made wasn't. Candidates that don't meet a
    condition are counted there, and in no group.
    """

    groups: int = 0
    candidates: int = 0
    unscored: int = 0
    rows: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    measures: Sequence[float] = ()
    every: int = 1
    """`measures` are every so many-th of all."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """How many pairs go with the corpus' own labels, by `Agreement`; also those that were left out for that."""
    made_up: bool = False
    """Whether the rewards are the fake engine's."""

    def __add__(self, other: "ExportSummary") -> "ExportSummary":
        every = max(self.every, other.every)
        measures = [*self.measures[:: every // self.every], *other.measures[:: every // other.every]]
        return ExportSummary(
            self.groups + other.groups,
            self.candidates + other.candidates,
            self.unscored + other.unscored,
            self.rows + other.rows,
            dict(sorted((Counter(self.left) + Counter(other.left)).items())),
            measures,
            every,
            dict(sorted((Counter(self.labels) + Counter(other.labels)).items())),
        )._thinned()

    def as_json(self) -> dict[str, Any]:
        """For the document and for `--json`."""
        there = {"labels": bool(self.labels.keys() - {LabelAgreement.UNLABELLED}), "made_up": self.made_up}
        untold = ("measures", "every", *(name for name, told in there.items() if not told))
        return {name: value for name, value in asdict(self).items() if name not in untold}

    def _thinned(self) -> "ExportSummary":
        """With some of the measures, evenly, where they are many."""
        measures, every = self.measures, self.every
        while len(measures) > _MOST_MEASURES:
            measures, every = measures[::2], 2 * every
        return replace(self, measures=measures, every=every)


@dataclass(frozen=True)
class ExportJob:
    """What is made of which folder: `asked` says it in a line, `settings` in full.

    `needs` are scores that the corpus must have, `where` is a condition in SQL that a response must meet to be looked at.
    """

    kind: OutputKind
    scored: str
    output: str
    per: Literal["conversation", "row", "prompt"]
    """What belongs together: all responses of a row, those of them that answer the same prompt, or these of all rows."""
    maker: RowMaker
    asked: str
    settings: Mapping[str, Any]
    needs: Sequence[str] = ()
    where: str | None = None
    partial: bool = False
    overwrite: bool = False
    fake_ok: bool = True
    """Whether it may be made of made-up numbers."""
    by_part: bool = False
    """A file for each part, which can be made as soon as the part is there."""

    @property
    def name(self) -> str:
        """What it is called among those of a run."""
        return OWN if _inside(self) else self.kind.name


class FinishedExport(NamedTuple):
    """A job and what came of it."""

    job: ExportJob
    summary: ExportSummary

    def as_json(self) -> dict[str, Any]:
        """For the manifest of the run that did it, and for `--json`."""
        return {"asked": self.job.asked, "output": self.job.output, **self.summary.as_json()}


@dataclass(frozen=True)
class StartedExport:
    """A job that was begun: the output folder is there and marked. Small and picklable."""

    job: ExportJob
    reader: Reader
    parts: Parts
    document: Mapping[str, Any]
    ticket: Ticket | None
    """Of the lease under which files are written."""


def begin(job: ExportJob, manifest: Manifest, parts: Sequence[Part] = ()) -> tuple[StartedExport, dict[str, ExportSummary]]:
    """Check a job, and open its output folder. Returns what an earlier time has done, by number, too.

    `parts` are those that it reads, if it doesn't go by part. Raises a `UserError`.
    """
    if job.by_part and job.per == "prompt":
        raise SettingsError(
            "candidates of one prompt may be in any row, so they are compared when all is scored, not before"
        )
    reader = check(job, manifest)
    document = _document(job, manifest, parts)
    done = output_folder.start(job.output, document, job.kind)
    written = {number: ExportSummary(**found) for number, found in done.items()}
    parts_read = Parts(storage.absolute(job.scored), manifest.run)
    return StartedExport(job, reader, parts_read, document, ticket(job.output)), written


def check(job: ExportJob, manifest: Manifest) -> Reader:
    """Raise a `UserError` for whatever is wrong with a job for a scored folder. Returns what reads that."""
    check_ahead(job, manifest.columns)
    reader = Reader.of(manifest, job.where)
    check_made_up(job, reader)
    return reader


def check_ahead(job: ExportJob, columns: Columns) -> None:
    """Raise a `UserError` for whatever is wrong with a job for a corpus of such columns, which needn't be there yet."""
    check_comparable(job, columns)
    check_scores(columns, job.needs, f"`{job.kind.name}` with {job.asked}")
    if job.where is not None:
        Condition.check(job.where, columns.ours_first)
    output_folder.check_apart([job.scored, job.output] if not _inside(job) else [])
    output_folder.check_free(job.output, job.overwrite, job.kind)


def check_comparable(job: ExportJob, columns: Columns) -> None:
    """Raise `SettingsError` if responses of several rows would be compared by rewards that mean something in one alone."""
    if job.per == "prompt" and columns.within_row:
        raise SettingsError(f"`{job.kind.name}` with --per prompt: {WITHIN_ROW}; give --per row")


def follow(parts: pa.Table, steps: Sequence[StartedExport]) -> pa.Table:
    """Ray Data's function: make of parts that were just committed what is asked for, and pass on what was told of them."""
    for told in parts.to_pylist():
        counts = Counts(*(told[name] for name in Counts._fields))
        for step in steps:
            part = Part(told["file"], Range(told["start"], told["end"]), counts, step.parts.run or "")
            _make_piece(step, _Piece(_number(part), (part,)))
    return parts


def run_export(job: ExportJob) -> ExportSummary:
    """Make it, or go on where an earlier time ended.

    Raises a `UserError` if a folder won't do or another run writes there, `RunStopped` if a worker was lost for good, and
    `AuditError` if the parts don't hold what their names say.
    """
    manifest = read_scored_manifest(job.scored)
    entries = audit_parts(job.scored, manifest, job.partial)
    check(job, manifest)
    with lease(job.output):
        return _made(job, manifest, entries)


def complete(job: ExportJob) -> ExportSummary:
    """Make what isn't there yet, for whoever holds the output folder. Raises as `run_export`."""
    manifest = read_scored_manifest(job.scored)
    return _made(job, manifest, audit_parts(job.scored, manifest, job.partial))


def _made(job: ExportJob, manifest: Manifest, entries: PartEntries) -> ExportSummary:
    try:
        step, written = begin(job, manifest, [part for part, _ in entries])
        pieces = list(_pieces(job, entries))
        todo = [(step, piece) for piece in pieces if piece.number not in written]
        with workers(len(todo)) as hands:
            written |= dict(hands.map(_make_piece, todo))
        _delete_others(job, {piece.number for piece in pieces})
    except OSError as error:
        raise OutputError(f"{job.output} can't be written: {storage.error_text(error)}") from error
    summary = sum((written[piece.number] for piece in pieces), ExportSummary())
    expected = sum((part.counts for part, _ in entries), Counts())
    if (summary.candidates, summary.candidates + summary.unscored) != (expected.scored, expected.responses):
        raise AuditError(f"the parts hold {expected} by their names, and {summary.as_json()} was seen")
    summary = replace(summary, made_up=step.reader.made_up)
    made_of = output_folder.parts_fingerprint(entries)
    output_folder.finish(job.output, step.document, summary.as_json(), job.kind, made_of=made_of)
    return summary


def read_finished_export(job: ExportJob) -> ExportSummary | None:
    """What came of a job whose output is there already, of the scored folder as it is; None if there is something to do."""
    if job.overwrite:
        return None
    try:
        manifest = read_scored_manifest(job.scored)
        made_of = output_folder.parts_fingerprint(audit_parts(job.scored, manifest, job.partial))
    except UserError:  # it isn't there yet, or isn't complete
        return None
    summary = output_folder.read_finished(job.output, job.settings, manifest.fingerprint, made_of, job.kind)
    return None if summary is None else ExportSummary(**summary)


def _delete_others(job: ExportJob, numbers: Collection[str]) -> None:
    """Delete what was made of parts that were dropped later: of a dead driver's late writer."""
    folder, stem = storage.folder(job.output), f"{job.kind.stems[0]}-"
    for entry in folder.entries():
        number = entry.name.removeprefix(stem).partition(".")[0]
        if job.kind.is_file(entry.name) and number not in numbers:
            folder.delete(entry.name)


def _inside(job: ExportJob) -> bool:
    """Whether the output is the folder that a run keeps for its own choice."""
    return storage.absolute(job.output) == storage.folder(storage.absolute(job.scored)).sub(OWN).path


@dataclass(frozen=True, slots=True)
class _Piece:
    """Work of one file, by its number: some parts, or of all of them the prompts of one bucket of so many."""

    number: str
    parts: tuple[Part, ...] = ()
    bucket: int = 0
    buckets: int = 0


def _pieces(job: ExportJob, entries: Sequence[tuple[Part, storage.Entry]]) -> Iterator[_Piece]:
    if job.by_part:
        yield from (_Piece(_number(part), (part,)) for part, _ in entries)
        return
    size = sum(entry.size for _, entry in entries)
    if job.per == "prompt":
        buckets = -(-size // _BYTES)
        yield from (_Piece(output_folder.numbered(bucket), (), bucket, buckets) for bucket in range(buckets))
        return
    for at, group in enumerate(_groups(entries)):
        yield _Piece(output_folder.numbered(at), tuple(group))


def _groups(entries: Sequence[tuple[Part, storage.Entry]]) -> Iterator[list[Part]]:
    """Neighbouring parts that make a file of a useful size."""
    group, size = list[Part](), 0
    for part, entry in entries:
        if group and (size + entry.size > _BYTES or len(group) == _PARTS):
            yield group
            group, size = [], 0
        size += entry.size
        group.append(part)
    if group:
        yield group


def _number(part: Part) -> str:
    """With its counts: another part of the same rows, of a dead driver's late writer, is another number."""
    return part.name.removesuffix(".parquet")


def _make_piece(step: StartedExport, piece: _Piece) -> tuple[str, ExportSummary]:
    job, summary, measures = step.job, ExportSummary(), list[float]()
    groups = _by_prompt(step, piece) if piece.buckets else _by_row(step, piece)
    name = f"{job.kind.stems[0]}-{piece.number}.jsonl"
    folder = storage.folder(job.output)
    with folder.writing(name) as stream:
        for found in groups:
            there = [one for one in found if isinstance(one, Candidate)]
            unscored, unmet = found.count(LeftOut.UNSCORED), found.count(LeftOut.UNMET)
            made = job.maker(there) if there else ExportedRows(())
            left = {**made.left, **({LeftOut.UNMET.value: unmet} if unmet else {})}
            stream.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in made.rows)
            counts = (int(bool(there)), len(there) + unmet, unscored, len(made.rows))
            summary += ExportSummary(*counts, left, labels=made.labels)
            measures += made.measures
        if step.ticket is not None:
            step.ticket.check()
    summary += ExportSummary(measures=measures)
    if not summary.rows:
        folder.delete(name)
    output_folder.note_done(job.output, piece.number, asdict(summary))
    return piece.number, summary


Groups = Iterator[Sequence[Found]]


def _by_row(step: StartedExport, piece: _Piece) -> Groups:
    tables = (table for part in piece.parts for table in read_tables(step.parts.path(part), step.reader.reads))
    for row in step.reader.candidates(tables):
        yield from [row] if step.job.per == "conversation" else same_prompt([row])


def _by_prompt(step: StartedExport, piece: _Piece) -> Groups:
    """Prompts one after another: sorted by DuckDB, which holds on disk what doesn't fit into memory."""
    own, reads = step.reader.columns, step.reader.reads
    # By their places: SQL can't tell the columns `Prompt` and `prompt` of an input from each other.
    places = {name: f"c{at}" for at, name in enumerate(reads)}
    key, row = (places[own.prefix + name] for name in (PROMPT_HASH, ROW))
    schema = pa.schema([own.schema.field(name) for name in reads])
    with duckdb.connect() as connection, readable(step.parts):
        connection.register("parts", in_order(step.parts, schema, list(places.values())))
        batches = connection.sql(
            f"select {', '.join(places.values())} from parts "
            f"where hash(coalesce({key}, {row})) % {piece.buckets} = {piece.bucket} "
            f"order by {key}, {PART_AT}, {ROW_AT}"
        ).to_arrow_reader(_BATCH_ROWS)
        tables = (pa.Table.from_batches([batch]).rename_columns(reads) for batch in batches)
        yield from same_prompt(step.reader.candidates(tables))


def same_prompt(rows: Iterable[Sequence[Found]]) -> Groups:
    """Neighbours that answer the same prompt. Those that are no candidates don't part them: they go with the ones before."""
    group, prompt = list[Found](), None
    for one in itertools.chain.from_iterable(rows):
        if isinstance(one, Candidate):
            if prompt not in (None, one.prompt_hash):
                yield group
                group = []
            prompt = one.prompt_hash
        group.append(one)
    if group:
        yield group


def _document(job: ExportJob, manifest: Manifest, parts: Sequence[Part]) -> dict[str, Any]:
    names = json.dumps([] if job.by_part else [part.name for part in parts])
    return {
        "asked": job.asked,
        "settings": job.settings,
        "source": {
            "folder": storage.absolute(job.scored),
            "run": manifest.run,
            "identity": manifest.identity,
            "made_with": manifest.made_with,
            "fingerprint": manifest.fingerprint,
            "parts": f"sha256:{hashlib.sha256(names.encode()).hexdigest()}",
        },
    }


def check_made_up(job: ExportJob, reader: Reader) -> None:
    """Raise `SettingsError` if a trainer would be given made-up numbers."""
    if reader.made_up and not job.fake_ok:
        raise SettingsError(
            f"the rewards of {job.scored or 'this dataset'} are made up, by --engine fake, and `{job.kind.name}` writes for "
            "trainers: score with a real engine, or give --fake-ok to try a pipeline out"
        )


def check_scores(columns: Columns, needed: Sequence[str], what: str) -> None:
    """Raise `SettingsError` if a corpus lacks scores that are needed for what is asked for."""
    if missing := [name for name in needed if name not in columns.outputs]:
        raise SettingsError(
            f"{what} needs the scores {', '.join(missing)}, which the corpus hasn't: it has {', '.join(columns.outputs)}"
        )
