"""Blocks of a Ray Dataset as Arrow has their values, whatever container a step between left them in.

Ray's default batches are of numpy: a list comes back from one as an array in a pickled object or as a tensor, and null in a
column of numbers, or in a whole block, as NaN. pandas has its own NA, and NaN in text.
"""

import pyarrow as pa
import pyarrow.compute as pc
from ray.data import Dataset

from actors.errors import SourceError
from pipelines.data.corpus.python_rows import is_container, plain
from pipelines.workflows.datasets.known_datasets import known_schema

_UNFIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


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
