"""The result files of the benchmarks' own codes, so that what reads those reads ours, and gives our numbers.

`peers` has the files of each benchmark. An item without a grade is in none of them: these codes have no word for it, and
would count it as wrong.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pipelines.data.corpus.readers import RECORD
from pipelines.data.formats import parse
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.results.evaluation.benchmark import Benchmark
from pipelines.results.evaluation.games import with_games
from pipelines.results.evaluation.peer_format import GradedRow, InputRow, JudgedRun, MissingField
from pipelines.results.evaluation.peers import PEER_FORMATS
from pipelines.results.evaluation.read_items import read_items


class PeerFiles(NamedTuple):
    """The files by name, and why there aren't all of them, if so."""

    contents: Mapping[str, bytes]
    missing: str | None = None


def peer_files(benchmark: Benchmark, corpus: OpenedCorpus, run: JudgedRun) -> PeerFiles:
    """None for a benchmark whose code has no such files. Raises `SourceError` if a part can't be read."""
    if benchmark.name not in PEER_FORMATS:
        return PeerFiles({})
    contents: dict[str, bytes] = {}
    try:
        for name, content in PEER_FORMATS[benchmark.name].files(_graded_rows(benchmark, corpus), run):
            contents[name] = content
    except MissingField as missing:
        return PeerFiles(contents, f"peers/ lacks a result file of {benchmark.name}'s own code: {missing}, which it holds.")
    return PeerFiles(contents)


def _graded_rows(benchmark: Benchmark, corpus: OpenedCorpus) -> Iterator[GradedRow]:
    """Each input row as it was, with its rewards, of the items that have a grade."""
    columns, listing = corpus.manifest.columns, [part for part, _ in corpus.entries]
    identity = corpus.manifest.identity
    items = with_games(read_items(corpus.responses, listing, columns, benchmark.fields), identity)
    ungraded = {item.row for graded in benchmark.grade(items) if graded.cells is None for item in graded.of_rows}
    fields = [RECORD, *benchmark.fields] if columns.is_json else columns.carried.names
    for item in with_games(read_items(corpus.responses, listing, columns, fields), identity):
        if item.row not in ungraded:
            row = parse(item.fields[RECORD]) if columns.is_json else item.fields
            yield GradedRow(InputRow(item.row, row), item)
