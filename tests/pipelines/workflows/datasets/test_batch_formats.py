"""Steps of the user's own between ours, in each of Ray's batch formats: the rows come out as without them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import ray
from ray.data import DataContext, Dataset
from ray.data.extensions import ArrowPythonObjectArray, ArrowTensorArray

import assay
from pipelines.data.corpus.python_rows import python_rows
from pipelines.workflows.datasets.blocks import known_schema
from pipelines.workflows.datasets.score_rows import row_id
from tests.support.corpora import chat

COUNT = 24
FAKE: dict[str, Any] = {"model": "tiny-attributes", "engine": "fake"}
FEW: dict[str, Any] = {"partitions": 2, "fake_ok": True}
FORMATS = pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])


@pytest.fixture(scope="module", autouse=True)
def quiet_ray(local_ray: None) -> Iterator[None]:
    context = DataContext.get_current()
    before, context.enable_progress_bars = context.enable_progress_bars, False
    yield
    context.enable_progress_bars = before


def pair(number: int) -> dict[str, Any]:
    """A pair of conversations. Every tenth rejected one can't be judged."""
    question = f"What is {number % 6}?"
    return {
        "id": number,
        "chosen": chat(question, f"It is {number}.")["messages"],
        "rejected": chat(question, f"It is -{number}." if number % 10 else "<extra_id_1>")["messages"],
        "tags": ["a"] * (number % 3) if number % 5 else None,
        "votes": [[number], [number, 1]],
        "of": {"source": "web", "texts": ["x", None]},
        "note": "seen" if number >= COUNT // 2 else None,
        "weight": 0.5 if number % 2 else None,
    }


@pytest.fixture(scope="module")
def source() -> Dataset:
    """Two blocks. In the first of them no row has a note."""
    table = pa.Table.from_pylist([pair(number) for number in range(COUNT)])
    return ray.data.from_arrow([table.slice(0, COUNT // 2), table.slice(COUNT // 2)])


@pytest.fixture(scope="module")
def lazy(source: Dataset) -> Dataset:
    """The scored pairs, whose types are known."""
    return assay.score(source, **FAKE)


@pytest.fixture(scope="module")
def scored(lazy: Dataset) -> Dataset:
    """The scored pairs, held as two blocks: only the first has a reason, and only the second a note."""
    table = pa.concat_tables(ray.get(lazy.materialize().to_arrow_refs())).sort_by([("id", "descending")])
    return ray.data.from_arrow([table.slice(COUNT), table.slice(0, COUNT)])


def through(dataset: Dataset, batch_format: str) -> Dataset:
    """A step that changes nothing, but for the containers in which Ray hands the values over."""
    return dataset.map_batches(lambda batch: batch, batch_format=batch_format)


def ordered(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows, in an order of their own. Whole numbers beside nulls come back from numpy as 51.0, which equals 51."""
    return sorted(dataset.take_all(), key=lambda row: str([row.get("id"), row.get("response_name"), *row.values()]))


@FORMATS
def test_rows_are_scored_as_without_the_step(source: Dataset, scored: Dataset, batch_format: str) -> None:
    result = assay.score(through(source, batch_format), **FAKE)
    assert ordered(result) == ordered(scored)
    assert known_schema(result) is not None


@FORMATS
def test_scored_rows_are_filtered_as_without_the_step(scored: Dataset, batch_format: str) -> None:
    step = through(scored, batch_format)
    conditions = ("reward > -100", "reason is not null", "note = 'seen'", "len(tags) = 2", "scores.verbosity > 0")
    counts = [assay.filter(scored, condition).count() for condition in conditions]
    assert all(counts)
    assert [assay.filter(step, condition).count() for condition in conditions] == counts
    kept = through(assay.filter(step, "reward is not null"), batch_format)
    assert ordered(assay.filter(kept, top_k=1)) == ordered(assay.filter(scored, top_k=1))
    assert assay.filter(step, top_fraction=0.5).count() == assay.filter(scored, top_fraction=0.5).count()


@FORMATS
def test_pairs_choices_and_exports_are_those_without_the_step(lazy: Dataset, scored: Dataset, batch_format: str) -> None:
    step = through(assay.filter(through(scored, batch_format), "reward > -100"), batch_format)
    good = assay.filter(scored, "reward > -100")
    result, expected = (ordered(assay.pairs(each, "trl", of=lazy, **FEW)) for each in (step, good))
    assert len(expected) > 1
    assert result == expected
    result, expected = (ordered(assay.choose(each, "best", of=lazy, partitions=2)) for each in (step, good))
    assert result == expected
    result, expected = (ordered(assay.export(each, "kto", threshold=0.0, of=lazy, **FEW)) for each in (step, good))
    assert result == expected


@FORMATS
def test_candidates_are_drawn_and_paired_as_without_the_step(batch_format: str) -> None:
    request = ray.data.from_items(
        [{"messages": [{"role": "user", "content": f"What is {index}?"}], "id": index} for index in range(6)]
    )
    models: dict[str, Any] = {"policy": "tiny-genrm", "judge": "tiny-attributes", "engine": "fake", "policy_max_tokens": 16}
    drawn = assay.sample(request, **models, n=2)
    held = drawn.materialize()
    assert ordered(assay.sample(through(request, batch_format), **models, n=2)) == ordered(held)
    result, expected = (ordered(assay.pairs(each, "trl", of=drawn, **FEW)) for each in (through(held, batch_format), held))
    assert expected
    assert result == expected


def test_nan_and_na_are_null() -> None:
    """As a column of pandas has them that is read from a file with gaps."""

    def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
        system = pd.Series(["Be brief.", float("nan"), None, pd.NA], dtype=object)
        return frame.assign(system=system, label=pd.array([1, None, 2, 3], dtype="Int64"), note=[np.nan, "x", pd.NaT, None])

    rows = [chat(f"What is {index}?", str(index), id=index) for index in range(4)]
    result = assay.score(
        ray.data.from_items(rows, override_num_blocks=1).map_batches(with_gaps, batch_format="pandas"), **FAKE
    ).take_all()
    assert [row["status"] for row in result] == ["scored"] * 4
    assert [(row["system"], row["label"], row["note"]) for row in result] == [
        ("Be brief.", 1, None),
        (None, None, "x"),
        (None, 2, None),
        (None, 3, None),
    ]
    without_gaps = [{"messages": [{"role": "system", "content": "Be brief."}, *rows[0]["messages"]], "id": 0}, *rows[1:]]
    expected = assay.score(ray.data.from_items(without_gaps), **FAKE).take_all()
    assert {row["id"]: row["reward"] for row in result} == {row["id"]: row["reward"] for row in expected}


def test_turns_may_be_of_types_that_no_column_holds() -> None:
    """In numpy's batches a content may be text in one turn and a list of parts in another."""

    def with_parts(batch: dict[str, Any]) -> dict[str, Any]:
        for talk in batch["messages"]:
            talk[0]["content"] = np.array([{"type": "text", "text": talk[0]["content"]}], dtype=object)
        return batch

    rows = [chat(f"What is {index}?", str(index), id=index) for index in range(3)]
    mixed = ray.data.from_items(rows).map_batches(with_parts)
    result = sorted(assay.score(mixed, **FAKE).take_all(), key=lambda row: str(row["id"]))
    expected = assay.score(ray.data.from_items(rows), **FAKE).take_all()
    assert {row["id"]: row["reward"] for row in result} == {row["id"]: row["reward"] for row in expected}


class Picture:
    """A value that Arrow has no type for."""


def test_a_value_that_arrow_has_no_type_for_is_carried_as_it_is() -> None:
    def with_pictures(batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {
            "picture": np.array([Picture() for _ in batch["id"]], dtype=object),
            "pixels": np.zeros((len(batch["id"]), 2, 2)),
        }

    rows = [chat(f"What is {index}?", str(index), id=index) for index in range(3)]
    result = assay.score(ray.data.from_items(rows).map_batches(with_pictures), **FAKE).take_all()
    assert [row["status"] for row in result] == ["scored"] * 3
    assert all(isinstance(row["picture"], Picture) and np.shape(row["pixels"]) == (2, 2) for row in result)


def test_objects_and_tensors_are_rows_as_lists_are() -> None:
    values = [np.array([{"role": "user", "content": np.array(["a", None], dtype=object)}], dtype=object), None]
    numbers = np.array([[1.0, np.nan], [2.0, 3.0]])
    table = pa.table({"turns": ArrowPythonObjectArray.from_objects(values), "numbers": ArrowTensorArray.from_numpy(numbers)})
    rows = [
        {"turns": [{"role": "user", "content": ["a", None]}], "numbers": [1.0, None]},
        {"turns": None, "numbers": [2.0, 3.0]},
    ]
    assert python_rows(table) == rows
    long = np.zeros((2, 5000))
    long[1, 2500] = 1
    assert len({row_id(row) for row in python_rows(pa.table({"a": ArrowTensorArray.from_numpy(long)}))}) == 2
