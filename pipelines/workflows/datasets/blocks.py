"""Blocks of a Ray Dataset as Arrow has their values, whatever container a step between left them in.

Ray's default batches are of numpy: a list comes back from one as an array in a pickled object or as a tensor, and null in a
column of numbers, or in a whole block, as NaN. pandas has its own NA, and NaN in text.

The datasets that Assay made are registered, with their schema and the reader for their rows: a lazy dataset knows neither
before it is executed, and to find its schema, Ray would start an engine and score a row.
"""

from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from ray.data import Dataset

from actors.errors import SourceError
from pipelines.data.corpus.python_rows import is_container, plain
from pipelines.folders.scored_corpus.read_back import Reader

_UNFIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
# Weak references, so that an entry goes with its dataset.
_KNOWN: "WeakKeyDictionary[Dataset, tuple[pa.Schema, Reader | None]]" = WeakKeyDictionary()


def register(dataset: Dataset, schema: pa.Schema, reader: Reader | None) -> Dataset:
    """Register a dataset, and return it."""
    _KNOWN[dataset] = schema, reader
    return dataset


def known_schema(dataset: Dataset) -> pa.Schema | None:
    """The registered schema of a dataset, or None."""
    return _KNOWN.get(dataset, (None, None))[0]


def reader_of(dataset: Dataset) -> Reader | None:
    """The registered reader for the rows of a scored dataset, or None.

    Also None for a dataset that is scored by us and changed by steps of the caller: nothing is known of those rows.
    """
    return _KNOWN.get(dataset, (None, None))[1]


def schema_of(dataset: Dataset) -> pa.Schema:
    """The schema of a dataset of plain blocks. If it isn't registered, Ray may have to execute its beginning."""
    if (registered := known_schema(dataset)) is not None:
        return registered
    schema: Any = dataset.schema()
    return pa.schema([]) if schema is None else schema.base_schema.remove_metadata()


def with_plain_blocks(dataset: Dataset) -> Dataset:
    """The dataset with lists in place of arrays, and null in place of NaN and NA; unchanged if Assay made it. Lazy.

    The steps up to the one that gives all blocks the same types may not ask for batches of a size: Ray would join blocks
    before this step, and can't join one of text with one that has NaN in place of it.
    """
    if known_schema(dataset) is not None:
        return dataset
    plain_blocks: Dataset = dataset.map_batches(_plain_block, batch_size=None, batch_format="pyarrow")
    return plain_blocks


def _plain_block(block: pa.Table) -> pa.Table:
    return pa.Table.from_arrays([_plain_column(column) for column in block.columns], block.column_names)


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """The column; of the type null, if it has nothing but NaN, and as it is, if Arrow has no type for its objects."""
    if is_container(column.type):
        try:
            return pa.array([plain(value) for value in column.to_pylist()])
        except _UNFIT:
            return column
    if not pa.types.is_floating(column.type) or not pc.any(is_nan := pc.is_nan(column)).as_py():
        return column
    numbers = pc.if_else(is_nan, None, column)
    # A block of nothing but null comes back as floats: as text in the other blocks, it wouldn't go with them.
    return numbers if numbers.null_count < len(numbers) else pa.nulls(len(numbers))


def with_types_of(known: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """The schema, in which fields of the type null, whose first values were all null, have their type in `known`."""
    untyped = {field.name for field in schema if pa.types.is_null(field.type)}.intersection(known.names)
    return pa.schema([known.field(field.name) if field.name in untyped else field for field in schema])


def conform(block: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a block to the schema of its dataset; missing columns are null. Raises `SourceError` if it doesn't fit."""
    if extra := [name for name in block.column_names if name not in schema.names]:
        raise SourceError(
            f"some rows have a column {extra[0]!r}, and the first of the dataset don't; give all rows the same"
        )
    columns = []
    for field in schema:
        if field.name not in block.column_names:
            columns.append(pa.nulls(len(block), field.type))
            continue
        column = block.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except _UNFIT as error:
            raise SourceError(
                f"column {field.name!r} is {column.type} in some rows, and {field.type} in the first of the dataset; "
                "give it one type in all rows"
            ) from error
    return pa.table(columns, schema)
