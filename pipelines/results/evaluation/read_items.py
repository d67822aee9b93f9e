"""Reads the items of a scored corpus: its rows, each with the rewards of its responses, one part at a time."""

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from actors.records import Reason, Status
from pipelines.data.corpus.python_rows import python_rows
from pipelines.folders.run_folder.columns import (
    PROMPT_HASH,
    REASON,
    RESPONSE,
    REWARD,
    ROW,
    SCORES,
    STATUS,
    STEPS,
    TEXT,
    VOTES,
    Columns,
)
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus.scored_folder import ResponsesOf
from pipelines.results.evaluation.benchmark import Item

_ID = "id"  # isn't part of what an item is: authors renumber their files
_OURS = (ROW, RESPONSE, PROMPT_HASH, REWARD, STATUS, REASON, SCORES)


def read_items(source: ResponsesOf, listing: Sequence[Part], columns: Columns, fields: Sequence[str]) -> Iterator[Item]:
    """The items in the order of the corpus. A row's responses stand together in one part, so one part is open at a time.

    Raises `SourceError` if a part can't be read.
    """
    carried = [name for name in fields if name in columns.carried.names]
    has = {STEPS: columns.steps, VOTES: columns.votes, TEXT: columns.text}
    ours = (*_OURS, *(name for name, is_there in has.items() if is_there))
    names = [*(columns.prefix + name for name in ours), *carried]
    for part in listing:
        responses = (row for table in source.tables(part, names) for row in _rows(table, ours, carried))
        # A row's responses are written side by side and never into two parts, so that neighbours are enough.
        for _, group in itertools.groupby(responses, key=lambda response: response[ROW]):
            yield _item(list(group), carried)


def _rows(table: pa.Table, ours: Sequence[str], carried: Sequence[str]) -> list[dict[str, Any]]:
    # A field of the input may have the name of one of ours, so it is put under `fields.`.
    return python_rows(table.rename_columns([*ours, *(f"fields.{name}" for name in carried)]), unconvertible=None)


def _item(responses: Sequence[dict[str, Any]], carried: Sequence[str]) -> Item:
    first = responses[0]
    # By the first prompt that could be read: a rejected response has none, and is left out anyway.
    readable = next((response for response in responses if response[PROMPT_HASH] is not None), first)
    for response in responses:
        # Assay writes no such rewards, but what was made otherwise may hold them: NaN > 1 is false, and would be wrong.
        if response[REWARD] is not None and not math.isfinite(response[REWARD]):
            response |= {REWARD: None, STATUS: Status.FAILED.value, REASON: Reason.NOT_FINITE.value}
        # Rewards of two prompts aren't comparable: a pair whose sides answer different questions would be graded by luck.
        elif response[REWARD] is not None and response[PROMPT_HASH] != readable[PROMPT_HASH]:
            other_prompt = f"{response[RESPONSE]} answers another prompt than {readable[RESPONSE]}"
            response |= {REWARD: None, STATUS: "not compared", REASON: other_prompt}
    scored = [response for response in responses if response[REWARD] is not None]
    fields = {name: first[f"fields.{name}"] for name in carried}
    return Item(
        first[ROW],
        fields,
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
        content=_content(responses, {name: value for name, value in fields.items() if name != _ID}),
    )


def _content(responses: Sequence[dict[str, Any]], labels: Mapping[str, Any]) -> int | None:
    if TEXT not in responses[0]:
        return None
    # Sorted, as another file may have the same responses in another order.
    texts = sorted((response[RESPONSE], response[PROMPT_HASH], response[TEXT]) for response in responses)
    # A label that other rows of the file lack is a float there, and an integer in another file.
    plain = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in labels.items()
    }
    present = sorted((name, value) for name, value in plain.items() if value is not None)
    # 64 bits: `Grades.repeated` says what that means for a million items. A half of a surrogate pair has no UTF-8.
    what = repr((texts, present)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(what, digest_size=8).digest())
