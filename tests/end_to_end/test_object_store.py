"""The whole job from and to an object store, against a real S3 server."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import commands
from tests.support.commands import assay
from tests.support.corpora import lines, rows, write
from tests.support.local_ray import run_here
from tests.support.object_store import BUCKET, unreachable

summary = partial(commands.summary, run=run_here)

FAKE = ("--model", "tiny-attributes", "--engine", "fake")


def fill(s3: Any, folder: Path) -> list[Path]:
    """The same files in the bucket and in a folder: plain, gzip and zstd lines, and an array."""
    some = rows(400)
    pieces = [lines(some[start : start + 100]) for start in (0, 100, 200)]
    files = [
        write(folder / "a.jsonl", pieces[0] + b"{broken\n"),
        write(folder / "sub" / "b.jsonl.gz", pieces[1]),
        write(folder / "sub" / "c.jsonl.zst", pieces[2]),
        write(folder / "d.json", json.dumps(some[300:]).encode()),
    ]
    for file in files:
        s3.pipe_file(f"{BUCKET}/in/{file.relative_to(folder)}", file.read_bytes())
    return files


def contents(s3: Any, place: str, name: str) -> dict[str, bytes]:
    return {path.rsplit("/", 1)[1]: s3.cat_file(path) for path in s3.glob(f"{place}/{name}")}


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    """What a run found, less how long it took."""
    return {name: value for name, value in results.items() if name != "work"}


@pytest.mark.long
@pytest.mark.usefixtures("s3_ray")
def test_the_job_in_a_bucket_is_the_job_on_a_disk(s3: Any, tmp_path: Path) -> None:
    fill(s3, tmp_path / "in")
    here = numbers(summary("score", tmp_path / "in", tmp_path / "scored", *FAKE, "--set", "work.part_rows=30"))
    there = numbers(summary("score", f"{BUCKET}/in", f"{BUCKET}/scored", *FAKE, "--set", "work.part_rows=30"))
    assert here == there
    assert (there["rows"], there["scored"], there["rejected"]) == (401, 400, 1)
    summary("filter", tmp_path / "scored", tmp_path / "kept", "--where", "reward > 0", "--rest", tmp_path / "rest")
    summary("filter", f"{BUCKET}/scored", f"{BUCKET}/kept", "--where", "reward > 0", "--rest", f"{BUCKET}/rest")
    for side in ("kept", "rest"):
        local = {path.name: path.read_bytes() for path in (tmp_path / side).glob("*.jsonl")}
        assert contents(s3, f"{BUCKET}/{side}", "*.jsonl") == local != {}

    before = {info["name"]: info["LastModified"] for info in s3.ls(f"{BUCKET}/scored/parts", detail=True)}
    lost = sorted(before)[3]
    s3.rm_file(lost)
    assert numbers(summary("score", f"{BUCKET}/in", f"{BUCKET}/scored", *FAKE)) == there
    after = {info["name"]: info["LastModified"] for info in s3.ls(f"{BUCKET}/scored/parts", detail=True)}
    assert {name: after[name] for name in before if name != lost} == {n: t for n, t in before.items() if n != lost}

    s3.pipe_file(f"{BUCKET}/in/a.jsonl", lines(rows(5)))
    changed = run_here("score", f"{BUCKET}/in", f"{BUCKET}/scored", *FAKE)
    assert changed.returncode == 2
    assert "a.jsonl: has changed since its scoring started" in changed.stderr


@pytest.mark.usefixtures("s3_ray")
def test_parquet_in_a_bucket(s3: Any, tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{"id": number, **row} for number, row in enumerate(rows(50))])
    with s3.open(f"{BUCKET}/corpus.parquet", "wb") as stream:
        pq.write_table(table, stream, row_group_size=20)
    summary("score", f"{BUCKET}/corpus.parquet", f"{BUCKET}/scored", *FAKE)
    summary("filter", f"{BUCKET}/scored", f"{BUCKET}/kept", "--where", "true")
    with s3.open(f"{BUCKET}/kept/kept-00000.parquet", "rb") as stream:
        assert pq.read_table(stream).select(table.column_names).cast(table.schema) == table


@pytest.mark.long
def test_a_store_that_cant_be_reached_is_told_in_words(tmp_path: Path) -> None:
    done = assay("score", f"{BUCKET}/in", tmp_path / "scored", *FAKE, **unreachable())
    assert done.returncode == 2
    assert "s3://corpora/in can't be read" in done.stderr
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
