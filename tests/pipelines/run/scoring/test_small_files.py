"""Small files share parts: as many rows with the same scores as of one file, and each file is still proven to be whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import assay
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.options import build
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles.score_ensemble import ensemble
from pipelines.workflows.rescoring.retry_rows import retry
from pipelines.workflows.rescoring.verify_folder import verify
from tests.support.corpora import lines, rows, scored, settings, write
from tests.support.failures import fail

pytestmark = pytest.mark.usefixtures("local_ray")

LENGTHS = (7, 1, 0, 12, 3, 30, 2, 0, 0, 9, 1, 1, 25)
"""Rows of each file; some have none."""
TOTAL = sum(LENGTHS)


def small_files(folder: Path, all_rows: Sequence[Any], kind: str = "jsonl") -> Path:
    """The rows, cut into small files."""
    start = 0
    for number, length in enumerate(LENGTHS):
        path, mine = folder / f"{number:03}.{kind}", all_rows[start : start + length]
        if kind == "parquet":
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(list(mine), pa.Table.from_pylist(list(all_rows)).schema), path)
        else:
            write(path, lines(list(mine)))
        start += length
    return folder


def without_names(folder: Path) -> list[dict[str, Any]]:
    """The scored rows in their order, without the names of their files."""
    return [{name: value for name, value in row.items() if name != "row"} for row in scored(folder)]


def names_of(folder: Path) -> list[str]:
    return [row["row"] for row in scored(folder)]


@pytest.mark.parametrize(
    ("kind", "part_rows"),
    [
        ("jsonl", 20),
        *(pytest.param("jsonl", rows, marks=pytest.mark.long) for rows in (1000, 4)),
        *(pytest.param("parquet", rows, marks=pytest.mark.long) for rows in (1000, 20, 4)),
    ],
)
def test_many_files_are_scored_as_one_is(tmp_path: Path, kind: str, part_rows: int) -> None:
    all_rows = rows(TOTAL)
    score(settings(write(tmp_path / "one.jsonl", lines(all_rows)), tmp_path / "one"))
    many = small_files(tmp_path / "in", all_rows, kind)
    summary = score(settings(many, tmp_path / "out", part_rows=part_rows))
    assert (summary.rows, summary.scored) == (TOTAL, TOTAL)
    numbers = [
        [(row["id"], row["reward"], row["response_text"]) for row in scored(tmp_path / name)] for name in ("one", "out")
    ]
    assert numbers[0] == numbers[1]
    parts = Parts(str(tmp_path / "out")).listing()
    assert len(parts) <= -(-TOTAL // part_rows) + 1
    assert any(part.further for part in parts)
    assert verify(build(VerifySettings, {"scored": str(tmp_path / "out")})).is_sound


def test_each_row_is_named_by_its_file(tmp_path: Path) -> None:
    many = small_files(tmp_path / "in", rows(TOTAL))
    score(settings(many, tmp_path / "out"))
    expected = []
    for path in sorted(many.iterdir()):
        position = 0
        for line in path.read_bytes().splitlines(keepends=True):
            expected.append(f"{path.name}:{position}")
            position += len(line)
    assert names_of(tmp_path / "out") == expected


def test_what_is_lost_of_several_files_is_scored_again(tmp_path: Path) -> None:
    many, out = small_files(tmp_path / "in", rows(TOTAL)), tmp_path / "out"
    score(settings(many, out, part_rows=9))
    whole = scored(out)
    for path in sorted((out / "parts").iterdir())[::2]:
        path.unlink()
    left = {path.name for path in (out / "parts").iterdir()}
    assert score(settings(many, out, part_rows=14)).rows == TOTAL
    assert left <= {path.name for path in (out / "parts").iterdir()}
    assert scored(out) == whole
    fail(out, {0: "engine_timeout", 9: "engine_timeout", TOTAL - 1: "engine_refused"})
    assert scored(out) != whole
    retried = retry(build(RetrySettings, {"scored": str(out)}))
    assert (retried.before.failed, retried.after.failed) == (3, 0)
    assert scored(out) == whole


def test_appended_files_are_scored_after_those_that_are_there(tmp_path: Path) -> None:
    all_rows = rows(2 * TOTAL)
    small_files(tmp_path / "in" / "a", all_rows[:TOTAL])
    score(settings(tmp_path / "in", tmp_path / "out", part_rows=16))
    small_files(tmp_path / "in" / "b", all_rows[TOTAL:])
    assert score(settings(tmp_path / "in", tmp_path / "out", part_rows=16, append=True)).rows == 2 * TOTAL
    assert [row["id"] for row in scored(tmp_path / "out")] == [row["id"] for row in all_rows]


@pytest.mark.long
def test_an_ensemble_of_them_is_that_of_one_file(tmp_path: Path) -> None:
    all_rows = rows(TOTAL)
    single = write(tmp_path / "one.jsonl", lines(all_rows))
    many = small_files(tmp_path / "in", all_rows)
    for inputs, output in ((single, "of one"), (many, "of many")):
        flat = {"models": ("tiny-scalar", "tiny-attributes"), "engine": "fake", "combine": "mean", "part_rows": 9}
        ensemble(build(EnsembleSettings, {"inputs": (str(inputs),), "output": str(tmp_path / output), **flat}))
    assert without_names(tmp_path / "of many") == without_names(tmp_path / "of one")
    # The members' parts are cut differently: those of the second one are lost, and cut anew.
    member = tmp_path / "of many" / "models" / "tiny_attributes"
    whole = scored(tmp_path / "of many")
    for path in (*(member / "parts").iterdir(), *(tmp_path / "of many" / "parts").iterdir()):
        path.unlink()
    ensemble(build(EnsembleSettings, {"inputs": (str(many),), "output": str(tmp_path / "of many"), **flat, "part_rows": 4}))
    assert scored(tmp_path / "of many") == whole


def test_filters_pairs_and_exports_read_them(tmp_path: Path) -> None:
    all_rows = rows(TOTAL)
    single = write(tmp_path / "one.jsonl", lines(all_rows))
    many = small_files(tmp_path / "in", all_rows)
    kept = {}
    for inputs, name in ((single, "one"), (many, "many")):
        score(settings(inputs, tmp_path / f"scored {name}", part_rows=10))
        assay.filter(str(tmp_path / f"scored {name}"), str(tmp_path / f"kept {name}"), top_fraction=0.5, by="reward")
        kept[name] = sorted(
            line for path in (tmp_path / f"kept {name}").rglob("*.jsonl") for line in path.read_text().splitlines()
        )
    assert [json.loads(line)["id"] for line in kept["many"]] == [json.loads(line)["id"] for line in kept["one"]]
    assert kept["many"]
