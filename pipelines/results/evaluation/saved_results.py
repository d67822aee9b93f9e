"""Reads the results that an evaluation wrote: each model on each benchmark, with its items."""

import json
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.output_folder import result_name
from pipelines.results.evaluation.results import VERSION, Evaluation, Results, results_data

RESULTS = "results.json"


class SavedEvaluation(NamedTuple):
    """An evaluation and the lines of its items."""

    evaluation: Evaluation
    items: pa.Table


def is_results(folder: str) -> bool:
    """Whether a folder holds the results of an evaluation.

    False also for one that isn't there, or can't be read: whoever reads it next says why.
    """
    try:
        storage.folder(folder).read(RESULTS)
    except OSError:
        return False
    return True


def read_results(folder: str) -> Results:
    """What is in a folder's `results.json`. Raises `SourceError` if it isn't there, or can't be read."""
    try:
        document = json.loads(storage.folder(folder).read(RESULTS))
    except (OSError, ValueError) as error:
        reason = error_text(error) if isinstance(error, OSError) else error
        raise SourceError(f"{folder} holds no results of `assay evaluate`: {RESULTS}: {reason}") from error
    try:
        if document["assay_results"] != VERSION:
            raise KeyError("assay_results")
        return results_data().validate_python(document)
    except (KeyError, TypeError, ValidationError) as error:
        # pydantic lists each field that doesn't fit, a thousand for an older file: the first one says enough.
        what = error.errors()[0]["loc"] if isinstance(error, ValidationError) else repr(error)
        raise SourceError(
            f"{folder}/{RESULTS} was written by another version of Assay ({what}); evaluate the scored corpus again"
        ) from error


def read_evaluations(folder: str) -> list[SavedEvaluation]:
    """The evaluations of a folder with their items. Raises as `read_results`."""
    return [SavedEvaluation(evaluation, _items(folder, index)) for index, evaluation in enumerate(read_results(folder))]


def _items(folder: str, number: int) -> pa.Table:
    path = storage.folder(folder).file(f"items-{result_name(number)}.parquet")
    try:
        with storage.open_read(path) as stream:
            return pq.read_table(stream)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path} can't be read: {error}; evaluate the scored corpus again") from error
