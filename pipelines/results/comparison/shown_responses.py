"""Reads the texts of the few responses that a comparison or a report shows."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from actors.text.tool_calls import write_turn
from pipelines.folders.run_folder.columns import TEXT
from pipelines.folders.scored_corpus.read_back import Reader, ReadResponse
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus

Place = tuple[int, int]
"""The index of a response's part in the listing, and of the response among those that are read of the part."""

_CHARACTERS = 2_000  # of a prompt and of a text: documents are diffed and sent around, and a response may have megabytes


def read_responses(corpus: OpenedCorpus, places: Iterable[Place]) -> Iterator[tuple[Place, ReadResponse, str | None]]:
    """The responses at some places, in the order of the corpus, each with the text that was judged.

    That text is the column of texts where the run kept one, else what is parsed from the row; None if it can't be read.
    Raises `SourceError` if a part can't be read.
    """
    reader, prefix = Reader.of(corpus.manifest), corpus.manifest.columns.prefix
    judged = prefix + TEXT if corpus.manifest.columns.text else None
    names = list(dict.fromkeys([*reader.reads, *([judged] if judged else [])]))
    for part, group in itertools.groupby(sorted(set(places)), key=lambda place: place[0]):
        part_rows, first = [row for _, row in group], 0
        # Table by table: a part of long texts has gigabytes, and a few rows of each table are all that is kept of it.
        for table in corpus.responses.tables(corpus.entries[part][0], names):
            rows = [row for row in part_rows if first <= row < first + table.num_rows]
            chosen = table.take(pa.array([row - first for row in rows], pa.int64()))
            texts = chosen.column(judged).to_pylist() if judged else [None] * len(rows)
            for row, response, text in zip(rows, reader.responses(chosen), texts, strict=True):
                yield (part, row), response, response.text if text is None else text
            first += table.num_rows


def with_texts(corpus: OpenedCorpus, side: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the prompt's last turn and the response's text, where they are in this side; its place is left out."""
    part_at, row_at = f"{side}_part_at", f"{side}_row_at"
    places = [(row[part_at], row[row_at]) for row in rows if row[part_at] is not None]
    texts = {place: _shown(response, text) for place, response, text in read_responses(corpus, places)}
    return [
        {name: value for name, value in row.items() if name not in (part_at, row_at)}
        | texts.get((row[part_at], row[row_at]), {})
        for row in rows
    ]


def _shown(response: ReadResponse, text: str | None) -> dict[str, str | None]:
    prompt = write_turn(response.context[-1]) if response.context else None
    return {"prompt": _cut(prompt), "text": _cut(text)}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} ... ({len(text):,} characters)"
