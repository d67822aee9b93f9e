"""A registry of the Ray Datasets that Assay made: their schema, and the reader for their rows.

A lazy dataset knows neither before it is executed: to find its schema, Ray would start an engine and score a row. References
are weak, so an entry goes with its dataset.
"""

from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from ray.data import Dataset

from pipelines.folders.scored_corpus.read_back import Reader

_KNOWN: "WeakKeyDictionary[Dataset, tuple[pa.Schema, Reader | None]]" = WeakKeyDictionary()


def register(dataset: Dataset, schema: pa.Schema, reader: Reader | None) -> Dataset:
    """Register a dataset, and return it."""
    _KNOWN[dataset] = schema, reader
    return dataset


def known_schema(dataset: Dataset) -> pa.Schema | None:
    """The registered schema of a dataset, or None."""
    return _KNOWN.get(dataset, (None, None))[0]


def reader_of(dataset: Dataset) -> Reader | None:
    """The registered reader for the rows of a scored dataset, or None."""
    return _KNOWN.get(dataset, (None, None))[1]


def schema_of(dataset: Dataset) -> pa.Schema:
    """The schema of a dataset of plain blocks. If it isn't registered, Ray may have to execute its beginning."""
    if (registered := known_schema(dataset)) is not None:
        return registered
    schema: Any = dataset.schema()
    return pa.schema([]) if schema is None else schema.base_schema.remove_metadata()
