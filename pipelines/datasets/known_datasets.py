"""What is known of the Ray Datasets that we made: their columns, and how their rows are read back.

A Ray Dataset knows neither before it runs, and to find its columns out Ray would start an engine and score a row.
"""

from weakref import WeakKeyDictionary

import pyarrow as pa
from ray.data import Dataset

from pipelines.exports.read_back import Reader

_SCHEMAS: "WeakKeyDictionary[Dataset, pa.Schema]" = WeakKeyDictionary()
_READERS: "WeakKeyDictionary[Dataset, Reader]" = WeakKeyDictionary()


def remember(dataset: Dataset, schema: pa.Schema, reader: Reader | None) -> Dataset:
    """Note what is known of a dataset, and return it."""
    _SCHEMAS[dataset] = schema
    if reader is not None:
        _READERS[dataset] = reader
    return dataset


def known_schema(dataset: Dataset) -> pa.Schema | None:
    """The columns of a dataset of ours."""
    return _SCHEMAS.get(dataset)


def schema_of(dataset: Dataset) -> pa.Schema:
    """The columns of any dataset. Ray may have to run its beginning for them."""
    if (known := known_schema(dataset)) is not None:
        return known
    found = dataset.schema()
    if found is None:
        return pa.schema([])
    if isinstance(found.base_schema, pa.Schema):
        return found.base_schema.remove_metadata()
    return pa.schema(list(zip(found.names, found.types, strict=True)))


def reader_of(dataset: Dataset) -> Reader | None:
    """How the rows of a scored dataset of ours are read back."""
    return _READERS.get(dataset)
