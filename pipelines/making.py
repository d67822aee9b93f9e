"""What is made of a scored corpus, prompt by prompt: choices, pairs, rows for a trainer.

1. Check the scored folder, and the output folder.
2. Cut the work up: neighbouring parts where rows stand alone, or buckets of prompts where equal prompts may be anywhere.
3. Read the candidates back, make of them what was asked for, and write a file per piece of work. One that was killed goes on
   with the files that aren't there.
4. Say in the document what came of it: every scored candidate was looked at once.

What is written doesn't depend on how many workers there are.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

import duckdb

from actors.errors import AuditError, OutputError, SettingsError, SourceError
from pipelines import kept_folder, storage
from pipelines.candidates import Candidate
from pipelines.columns import PROMPT_HASH, ROW
from pipelines.filtering import audited, scored_manifest
from pipelines.judged_rows import Reader
from pipelines.kept_folder import Kind
from pipelines.manifest import Manifest
from pipelines.parts import Counts, Part, Parts, read_tables
from pipelines.summary import connected
from pipelines.workers import workers

_BYTES = 64 * 2**20
_PARTS = 256
_BATCH_ROWS = 1024
_MOST_MEASURES = 100_000


@dataclass(frozen=True, slots=True)
class Made:
    """What one group of candidates came to: rows to be written, and how often what wasn't, by why."""

    rows: Sequence[Mapping[str, Any]]
    left: Mapping[str, int] = field(default_factory=dict)
    measures: Sequence[float] = ()
    """The margins of its pairs."""


class Maker(Protocol):
    """Makes rows of the candidates that belong together. Small and picklable."""

    def __call__(self, candidates: Sequence[Candidate]) -> Made:
        """What they come to; `candidates` are in the order of the corpus, at least one."""


@dataclass(frozen=True)
class MadeSummary:
    """Counts: the candidates that were looked at, in how many groups (prompts or rows), and the rows made of them.

    `unscored` responses have no reward, and are none. `left` says why what wasn't made wasn't.
    """

    groups: int = 0
    candidates: int = 0
    unscored: int = 0
    rows: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    measures: Sequence[float] = ()
    every: int = 1
    """`measures` are every so many-th of all."""

    def __add__(self, other: "MadeSummary") -> "MadeSummary":
        every = max(self.every, other.every)
        measures = [*self.measures[:: every // self.every], *other.measures[:: every // other.every]]
        return MadeSummary(
            self.groups + other.groups,
            self.candidates + other.candidates,
            self.unscored + other.unscored,
            self.rows + other.rows,
            dict(sorted((Counter(self.left) + Counter(other.left)).items())),
            measures,
            every,
        )._thinned()

    def as_json(self) -> dict[str, Any]:
        """For the document and for `--json`."""
        return {name: value for name, value in asdict(self).items() if name not in ("measures", "every")}

    def _thinned(self) -> "MadeSummary":
        """With some of the measures, evenly, where they are many."""
        measures, every = self.measures, self.every
        while len(measures) > _MOST_MEASURES:
            measures, every = measures[::2], 2 * every
        return replace(self, measures=measures, every=every)


@dataclass(frozen=True)
class Job:
    """What is made of which folder: `asked` says it in a line, `settings` in full."""

    kind: Kind
    scored: str
    output: str
    per: Literal["conversation", "row", "prompt"]
    """What belongs together: all responses of a row, those of them that answer the same prompt, or these of all rows."""
    maker: Maker
    asked: str
    settings: Mapping[str, Any]
    partial: bool = False
    overwrite: bool = False


def make(job: Job) -> MadeSummary:
    """Make it, or go on where an earlier time ended.

    Raises a `UserError` if a folder won't do, `RunStopped` if a worker was lost for good, and `AuditError` if the parts
    don't hold what their names say.
    """
    manifest = scored_manifest(job.scored)
    entries = audited(job.scored, manifest, job.partial)
    kept_folder.check_apart([job.scored, job.output] if not _inside(job) else [])
    kept_folder.check_free(job.output, job.overwrite, job.kind)
    pieces = list(_pieces(job, entries))
    document = _document(job, manifest, [part for part, _ in entries])
    try:
        done = kept_folder.start(job.output, document, job.kind)
        step = _Step(job, Reader.of(manifest), storage.absolute(job.scored))
        written = {at: MadeSummary(**found) for at, found in done.items()}
        with workers(len(pieces)) as hands:
            todo = [(step, at, piece) for at, piece in enumerate(pieces) if at not in written]
            written |= dict(hands.map(_make_piece, todo))
    except OSError as error:
        raise OutputError(f"{job.output} can't be written: {storage.told(error)}") from error
    summary = sum(written.values(), MadeSummary())
    expected = sum((part.counts for part, _ in entries), Counts())
    if (summary.candidates, summary.candidates + summary.unscored) != (expected.scored, expected.responses):
        raise AuditError(f"the parts hold {expected} by their names, and {summary.as_json()} was seen")
    kept_folder.finish(job.output, document, summary.as_json(), job.kind)
    return summary


def _inside(job: Job) -> bool:
    """Whether the output is the folder that a run keeps for its own choice."""
    return storage.absolute(job.output) == storage.folder(storage.absolute(job.scored)).sub(OWN).path


OWN = "kept"
"""The folder inside a sampled corpus for what `sample --keep` chooses."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Work of one file: some parts, or of all of them the prompts of one bucket of so many."""

    parts: tuple[Part, ...] = ()
    bucket: int = 0
    buckets: int = 0


def _pieces(job: Job, entries: Sequence[tuple[Part, storage.Entry]]) -> Iterator[_Piece]:
    if not entries:
        return
    size = sum(entry.size for _, entry in entries)
    if job.per == "prompt":
        buckets = max(1, -(-size // _BYTES))
        yield from (_Piece(bucket=bucket, buckets=buckets) for bucket in range(buckets))
        return
    group, size = list[Part](), 0
    for part, entry in entries:
        if group and (size + entry.size > _BYTES or len(group) == _PARTS):
            yield _Piece(tuple(group))
            group, size = [], 0
        size += entry.size
        group.append(part)
    yield _Piece(tuple(group))


@dataclass(frozen=True)
class _Step:
    job: Job
    reader: Reader
    folder: str


def _make_piece(step: _Step, at: int, piece: _Piece) -> tuple[int, MadeSummary]:
    job, summary, measures = step.job, MadeSummary(), list[float]()
    groups = _by_prompt(step, piece) if piece.buckets else _by_row(step, piece)
    name = f"{job.kind.stems[0]}-{at:05d}.jsonl"
    folder = storage.folder(job.output)
    with folder.writing(name) as stream:
        for candidates in groups:
            there = [one for one in candidates if one is not None]
            made = job.maker(there) if there else Made(())
            stream.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in made.rows)
            unscored = len(candidates) - len(there)
            summary += MadeSummary(int(bool(there)), len(there), unscored, len(made.rows), made.left)
            measures += made.measures
    summary += MadeSummary(measures=measures)
    if not summary.rows:
        folder.delete(name)
    kept_folder.note_done(job.output, at, asdict(summary))
    return at, summary


Groups = Iterator[Sequence[Candidate | None]]


def _by_row(step: _Step, piece: _Piece) -> Groups:
    parts = Parts(step.folder).parts_folder
    tables = (table for part in piece.parts for table in read_tables(parts.file(part.name), step.reader.reads))
    found = step.reader.candidates(response for table in tables for response in table.to_pylist())
    for row in found:
        yield from [row] if step.job.per == "conversation" else _same_prompt([row])


def _by_prompt(step: _Step, piece: _Piece) -> Groups:
    """Prompts one after another: sorted by DuckDB, which holds on disk what doesn't fit into memory."""
    own, reads = step.reader.columns, step.reader.reads
    # By their places: SQL can't tell the columns `Prompt` and `prompt` of an input from each other.
    places = {name: f"c{at}" for at, name in enumerate(own.schema.names)}
    key, row = (places[own.prefix + name] for name in (PROMPT_HASH, ROW))
    parts = Parts(step.folder).parts_folder.path
    try:
        with connected(parts, list(places.values())) as connection:
            batches = connection.sql(
                f"select {', '.join(places[name] for name in reads)} from parts "
                f"where hash(coalesce({key}, {row})) % {piece.buckets} = {piece.bucket} "
                f"order by {key}, filename, file_row_number"  # parts are named in the order of the corpus
            ).to_arrow_reader(_BATCH_ROWS)
            responses = (response for batch in batches for response in batch.rename_columns(reads).to_pylist())
            yield from _same_prompt(step.reader.candidates(responses))
    except duckdb.Error as error:
        raise SourceError(f"{parts} can't be read: {error}") from error


def _same_prompt(rows: Iterable[Sequence[Candidate | None]]) -> Groups:
    """Neighbours that answer the same prompt. Those without a reward don't part them: they go with the ones before them."""
    group, prompt = list[Candidate | None](), None
    for one in itertools.chain.from_iterable(rows):
        if one is not None and prompt not in (None, one.prompt_hash):
            yield group
            group = []
        prompt = one.prompt_hash if one is not None else prompt
        group.append(one)
    if group:
        yield group


def _document(job: Job, manifest: Manifest, parts: Sequence[Part]) -> dict[str, Any]:
    identity = json.dumps([manifest.identity, [file.as_json() for file in manifest.files]], sort_keys=True)
    names = json.dumps([part.name for part in parts])
    return {
        "asked": job.asked,
        "settings": job.settings,
        "source": {
            "folder": storage.absolute(job.scored),
            "identity": manifest.identity,
            "made_with": manifest.made_with,
            "fingerprint": f"sha256:{hashlib.sha256(identity.encode()).hexdigest()}",
            "parts": f"sha256:{hashlib.sha256(names.encode()).hexdigest()}",
        },
    }


def check_scores(manifest: Manifest, needed: Sequence[str], what: str) -> None:
    """Raise `SettingsError` if a corpus lacks scores that are needed."""
    if missing := [name for name in needed if name not in manifest.columns.outputs]:
        raise SettingsError(
            f"{what} needs the scores {', '.join(missing)}, which the corpus hasn't: it has "
            f"{', '.join(manifest.columns.outputs)}"
        )
