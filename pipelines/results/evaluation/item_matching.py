"""Which items of several evaluations are the same: by what they hold, or by their place in files of the same bytes.

What an item holds (prompt, responses and labels) is the same in a shuffled copy and in a file of another name. But two runs
may read one prompt in two ways (another system prompt, reasoning that is left out), or leave the texts out: then its place
tells, in a file that both have. Of the two ways the one is taken by which more items meet.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from actors.errors import SettingsError
from pipelines.folders.scored_corpus.databases import connect

# Of the items of the smaller evaluation; where fewer meet, the two are of other data.
_LEAST_SHARE = 0.5


class EvaluatedModel(NamedTuple):
    """A model's name, its items as `items.parquet` has them, their data files, and what kind of judge it is.

    `judged` and `compared` are as in `MeanCells`: they decide what a tie is worth.
    """

    name: str
    items: pa.Table
    files: Sequence[Mapping[str, Any]]
    judged: bool
    compared: bool


def with_keys(models: Sequence[EvaluatedModel]) -> list[EvaluatedModel]:
    """The models with a `key` of their items, which is equal for the same item; null where nothing tells which one it is.

    Of equal items the first of one model is the first of the other, and so on: with three here and two there, two meet.
    """
    ways = ([model.items.column("content") for model in models], [_places(model) for model in models])
    keyed = [[_numbered(model.items, marks) for model, marks in zip(models, way, strict=True)] for way in ways]
    # Counted over all pairs of models, so that all have keys of one kind.
    items = max(keyed, key=lambda tables: sum(itertools.starmap(_count_met, itertools.combinations(tables, 2))))
    return [model._replace(items=table) for model, table in zip(models, items, strict=True)]


def check_fit(which: str, first: EvaluatedModel, second: EvaluatedModel) -> None:
    """Raise `SettingsError` if two models, called `which`, have so few common items that they are of other data."""
    fewer = min(len(first.items), len(second.items))
    if (met := _count_met(first.items, second.items)) < max(1, _LEAST_SHARE * fewer):
        raise SettingsError(
            f"{which} are of different data: {met:,} of {len(first.items):,} items of {_files_text(first)} are among the "
            f"{len(second.items):,} of {_files_text(second)}. Score the same data, or evaluate other data by themselves"
        )


def unmatched_text(sides: Mapping[str, EvaluatedModel]) -> str:
    """A sentence on the items that each of two models, by their names, has alone, and in which files; empty if none does."""
    met = _count_met(*(side.items for side in sides.values()))
    alone = {name: len(side.items) - met for name, side in sides.items()}
    texts = [f"{count:,} of {name}, in {_files_text(sides[name])}" for name, count in alone.items() if count]
    return f"Items of one alone: {'; '.join(texts)}." if texts else ""


def _count_met(first: pa.Table, second: pa.Table) -> int:
    return int(pc.sum(pc.is_in(first["key"], value_set=second["key"].drop_null())).as_py() or 0)


def _files_text(side: EvaluatedModel) -> str:
    names = ", ".join(str(file["name"]) for file in side.files)
    return names if side.items["content"].null_count == 0 else f"{names} (scored with `text: false`: known by place alone)"


def _places(side: EvaluatedModel) -> pa.ChunkedArray:
    # `name:place` of each row becomes `size-fingerprint:place`. An item of several rows has their names with a space
    # between.
    places = side.items["row"]
    for file in side.files:
        place = f"{file['size']}-{file['fingerprint']}:"
        places = pc.replace_substring_regex(places, f"(^| ){re.escape(file['name'])}:", rf"\1{place}")
    return places


def _numbered(items: pa.Table, marks: pa.ChunkedArray) -> pa.Table:
    columns = {"mark": marks, "nth": pa.array(range(len(items)), pa.int64())}
    with connect() as connection:
        connection.register("marks", pa.table(columns))
        # Null keys stay null and meet nothing. Equal marks are numbered in the order of the items, so that duplicates meet
        # one to one.
        keys = connection.sql(
            "select mark || ' ' || row_number() over (partition by mark order by nth) as key from marks order by nth"
        ).to_arrow_table()
    return items.append_column("key", keys["key"])
