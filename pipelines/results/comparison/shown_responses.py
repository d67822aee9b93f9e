"""Reads the texts of the few responses that a comparison shows."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from actors.text.tool_calls import write_turn
from pipelines.folders.run_folder.columns import TEXT
from pipelines.folders.scored_corpus.read_back import Reader, ReadResponse
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus

Place = tuple[int, int]
"""The index of a response's part in the listing, and of the response among those that are read of the part."""

_CHARACTERS = 2_000
"""Of a prompt and of a text at most so many characters are shown."""


def with_texts(corpus: OpenedCorpus, side: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the prompt's last turn and the response's text, where they are in this side; its place is left out."""
    texts = _texts(corpus, {place for row in rows if (place := _place(row, side)) is not None})
    return [{**_without_place(row, side), **texts.get(_place(row, side), {})} for row in rows]


def _place(row: Mapping[str, Any], side: str) -> Place | None:
    part, position = row.get(f"{side}_part_at"), row.get(f"{side}_row_at")
    return None if part is None or position is None else (part, position)


def _without_place(row: Mapping[str, Any], side: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (f"{side}_part_at", f"{side}_row_at")}


def _texts(corpus: OpenedCorpus, places: Collection[Place]) -> dict[Place | None, dict[str, str | None]]:
    columns, reader = corpus.manifest.columns, Reader.of(corpus.manifest)
    judged = [columns.prefix + TEXT] if columns.text else []
    names, texts = list(dict.fromkeys([*reader.reads, *judged])), dict[Place | None, dict[str, str | None]]()
    for part_at, group in itertools.groupby(sorted(places), key=lambda place: place[0]):
        shown_places = list(group)
        indices = pa.array([position for _, position in shown_places], pa.int64())
        table = pa.concat_tables(corpus.responses.tables(corpus.entries[part_at][0], names)).take(indices)
        judged_texts = table.column(judged[0]).to_pylist() if judged else [None] * len(table)
        for place, read, text in zip(shown_places, reader.responses(table), judged_texts, strict=True):
            texts[place] = _shown(read, text)
    return texts


def _shown(read: ReadResponse, judged: str | None) -> dict[str, str | None]:
    prompt = write_turn(read.context[-1]) if read.context else None
    return {"prompt": _cut(prompt), "text": _cut(read.text if judged is None else judged)}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} ... ({len(text):,} characters)"
