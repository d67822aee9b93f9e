"""Reads the items of a scored corpus: its rows, each with the rewards of its responses, one part at a time."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pipelines.evaluation.benchmark import Item
from pipelines.run_folder.columns import (
    PROMPT_HASH,
    REASON,
    RESPONSE,
    REWARD,
    ROW,
    SCORES,
    STATUS,
    STEPS,
    VOTES,
    Columns,
)
from pipelines.run_folder.parts import Part
from pipelines.scored_corpus.scored_folder import ResponsesOf

_OURS = (ROW, RESPONSE, PROMPT_HASH, REWARD, STATUS, REASON, SCORES)


def read_items(source: ResponsesOf, listing: Sequence[Part], columns: Columns, fields: Sequence[str]) -> Iterator[Item]:
    """The items in the order of the corpus. A row's responses stand together in one part, so one part is open at a time.

    Raises `SourceError` if a part can't be read.
    """
    carried = [name for name in fields if name in columns.carried.names]
    ours = (*_OURS, *((STEPS,) if columns.steps else ()), *((VOTES,) if columns.votes else ()))
    names = [*(columns.prefix + name for name in ours), *carried]
    for part in listing:
        responses = (row for table in source.tables(part, names) for row in _rows(table, ours, carried))
        for _, group in itertools.groupby(responses, key=lambda response: response[ROW]):
            yield _item(list(group), carried)


def _rows(table: pa.Table, ours: Sequence[str], carried: Sequence[str]) -> list[dict[str, Any]]:
    """The responses, by our names without the prefix. Carried fields have names of their own, under `fields`."""
    return table.rename_columns([*ours, *(f"fields.{name}" for name in carried)]).to_pylist()


def _item(responses: Sequence[dict[str, Any]], carried: Sequence[str]) -> Item:
    first = responses[0]
    scored = [response for response in responses if response[REWARD] is not None]
    return Item(
        first[ROW],
        {name: first[f"fields.{name}"] for name in carried},
        {response[RESPONSE]: response[REWARD] for response in scored},
        {
            response[RESPONSE]: f"{response[STATUS]}: {response[REASON]}"
            for response in responses
            if response[REWARD] is None
        },
        {response[RESPONSE]: response[SCORES] or {} for response in scored},
        {response[RESPONSE]: response[STEPS] or () for response in scored if STEPS in response},
        first[PROMPT_HASH],
        {response[RESPONSE]: response[VOTES] or () for response in scored if VOTES in response},
    )
