"""The job on a store that is nobody's mock: Ceph's gateway. Kills, two writers, odd names, and an outage in the middle.

`ASSAY_TESTS_OUTAGE_S=60` makes the outage a minute.
"""

import functools
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import fsspec
import psutil
import pyarrow.parquet as pq
import pytest
from s3fs import S3FileSystem

from pipelines.folders.run_folder.parts import Parts
from tests.support.ceph import Ceph, running_ceph
from tests.support.commands import actors_of, kill, refusal_of, running, sets, summary, wait_until
from tests.support.corpora import lines, rows

pytestmark = pytest.mark.long

ROWS = 600
OUTAGE_S = float(os.environ.get("ASSAY_TESTS_OUTAGE_S", "25"))
CORPUS = "s3://corpora/in [v1]"
FILES = ("a*b.jsonl", "deeper/[c].jsonl", "?.jsonl")


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    """A store with a corpus of three files, whose names would be patterns if somebody took them for such."""
    with running_ceph(tmp_path_factory.mktemp("ceph")) as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        S3FileSystem.clear_instance_cache()
        system = fsspec.filesystem("s3", use_listings_cache=False)
        system.mkdir("corpora")
        share, conversations = ROWS // len(FILES), rows(ROWS)
        for number, name in enumerate(FILES):
            system.pipe_file(f"{CORPUS}/{name}", lines(conversations[number * share : (number + 1) * share]))
        yield store
        S3FileSystem.clear_instance_cache()


def score(output: str, latency_s: float = 0.8) -> tuple[object, ...]:
    """A run of about half a minute, or in proportion to `latency_s`, in parts of ten rows."""
    slow = sets(f"engine.engine_args.latency_s={latency_s}", "engine.max_in_flight=16", "work.part_rows=10")
    return ("score", CORPUS, output, "--model", "tiny-attributes", "--engine", "fake", *slow)


def parts_in(output: str) -> int:
    return len(Parts(output).listing())


def has_parts(output: str, count: int) -> bool:
    return parts_in(output) >= count


def ids_in(output: str) -> Counter[int]:
    """How often each row of the corpus is in the parts, as anybody reads them."""
    system: Any = fsspec.filesystem("s3", use_listings_cache=False)
    counts = Counter[int]()
    for path in system.find(f"{output}/parts"):
        with system.open(path, "rb") as stream:
            counts.update(int(row["row"].rpartition(":")[2]) for row in pq.read_table(stream, columns=["row"]).to_pylist())
    return counts


def check_complete(output: str) -> None:
    """Every row is there once, whoever counts."""
    assert summary("verify", output, "--sample", 0)["bad"] == {}
    kept = summary("filter", output, "--where", "true")
    assert (kept["rows"], kept["kept"]) == (ROWS, ROWS)
    counts = ids_in(output)
    assert sum(counts.values()) == ROWS


@pytest.mark.usefixtures("ceph")
def test_kills_and_two_writers() -> None:
    output = "s3://corpora/out [x*]"
    command = score(output, latency_s=2.5)  # so slow that it can't end before a second command has begun
    for _ in range(2):
        enough = parts_in(output) + 5
        with running(*command) as driver:
            wait_until(functools.partial(has_parts, output, enough), driver, every_s=0.2)
            assert "is being written by another run" in refusal_of(*command)
            kill(driver)
    committed = parts_in(output)
    assert 10 <= committed < ROWS // 10
    done = summary(*command)
    assert (done["rows"], done["scored"]) == (ROWS, ROWS)
    check_complete(output)


def test_an_outage_costs_no_engine_and_no_row(ceph: Ceph, capfd: pytest.CaptureFixture[str]) -> None:
    output, engines = "s3://corpora/outage", list[psutil.Process]()
    with running(*score(output), "--set", "work.max_replicas=2") as driver:
        wait_until(functools.partial(has_parts, output, 5), driver, every_s=0.2)
        engines += actors_of(driver)
        ceph.stop_gateway()
        time.sleep(OUTAGE_S)
        assert driver.is_running()
        ceph.start_gateway()
        wait_until(functools.partial(has_parts, output, ROWS // 20), driver, every_s=0.2)
        assert engines
        assert {engine.pid for engine in engines} <= {engine.pid for engine in actors_of(driver)}
        assert driver.wait() == 0
    errors = capfd.readouterr().err
    assert f"{output} doesn't answer since 1" in errors
    check_complete(output)
