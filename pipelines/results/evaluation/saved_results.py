"""Reads the results that an evaluation wrote: each model on each benchmark, with its items."""

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.output_folder import result_name
from pipelines.results.evaluation.evaluate_corpus import RESULTS
from pipelines.results.evaluation.results import VERSION, label_of


@dataclass(frozen=True)
class SavedEvaluation:
    """An evaluation as `results.json` has it, and the lines of its items."""

    benchmark: str
    model: str
    is_made_up: bool
    judged: bool
    """Whether a judge scored it, whose ties may count otherwise."""
    figures: Sequence[Mapping[str, Any]]
    files: Sequence[Mapping[str, Any]]
    items: pa.Table
    margins: Mapping[str, Any] | None = None
    """Accuracy by the difference of the rewards, as `results.json` has it; None where a benchmark or a reading has none."""
    votes: Mapping[str, Any] | None = None
    """What a judge's votes come to, as `results.json` has it; None of a reward head."""
    published: Sequence[Mapping[str, Any]] = ()
    """The published tables that have this model, each beside the figures here that are like its own."""


def is_results(folder: str) -> bool:
    """Whether a folder holds the results of an evaluation."""
    try:
        storage.folder(folder).read(RESULTS)
    except OSError:
        return False
    return True


def read_results(folder: str) -> list[SavedEvaluation]:
    """The evaluations in a folder. Raises `SourceError` if it holds none, or if they can't be read."""
    document = _read_document(folder)
    try:
        return [_evaluation(folder, number, saved) for number, saved in enumerate(document["evaluations"])]
    except (KeyError, TypeError, AttributeError) as error:  # a field is missing, or of another type than here
        raise _other_version(folder, error) from error


def _evaluation(folder: str, number: int, saved: Mapping[str, Any]) -> SavedEvaluation:
    # What is read of them later is asked for here, so that a field that isn't there is missed where the file is named.
    for figure in saved["figures"]:
        operator.itemgetter("name", "value", "convention")(figure)
    for file in saved["files"]:
        operator.itemgetter("name", "size", "fingerprint")(file)
    return SavedEvaluation(
        saved["benchmark"],
        label_of(saved["model"], saved.get("preset") is not None),
        saved["identity"].get("engine") == "fake",
        saved["identity"].get("judge") is not None,
        saved["figures"],
        saved["files"],
        _items(folder, number),
        saved.get("margins"),
        saved.get("votes"),
        saved.get("published") or (),
    )


def read_differences(folder: str) -> list[dict[str, Any]]:
    """How each two models of an evaluation differ on each benchmark, as `results.json` has it. Raises as `read_results`."""
    return list(_read_document(folder).get("paired") or [])


def _read_document(folder: str) -> dict[str, Any]:
    try:
        document = json.loads(storage.folder(folder).read(RESULTS))
    except (OSError, ValueError) as error:
        reason = error_text(error) if isinstance(error, OSError) else error
        raise SourceError(f"{folder} holds no results of `assay evaluate`: {RESULTS}: {reason}") from error
    try:
        if document["assay_results"] != VERSION:
            raise KeyError("assay_results")
    except (KeyError, TypeError) as error:
        raise _other_version(folder, error) from error
    return dict(document)


def _other_version(folder: str, error: Exception) -> SourceError:
    return SourceError(
        f"{folder}/{RESULTS} was written by another version of Assay ({error!r}); evaluate the scored corpus again"
    )


def _items(folder: str, number: int) -> pa.Table:
    path = storage.folder(folder).file(f"items-{result_name(number)}.parquet")
    try:
        with storage.open_read(path) as stream:
            return pq.read_table(stream)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path} can't be read: {error}; evaluate the scored corpus again") from error
