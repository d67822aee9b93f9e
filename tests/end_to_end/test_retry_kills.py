"""`retry` is killed, driver and all, while it replaces parts; and `verify` and `retry` in a bucket."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.folders.run_folder.part import Part
from tests.support.commands import kill, parts_of, running, sets, summary, wait_until
from tests.support.corpora import lines, rows, scored, write
from tests.support.failures import fail
from tests.support.local_ray import run_here
from tests.support.object_store import BUCKET

FAKE = ("--model", "tiny-attributes", "--engine", "fake")
ROWS, PART_ROWS = 1500, 10


def with_failures(folder: Path, count: int) -> list[dict[str, Any]]:
    """A scored folder in whose every part a response has failed; its rows before that."""
    corpus = write(folder / "c.jsonl", lines(rows(count)))
    summary("score", corpus, folder / "out", *FAKE, *sets(f"work.part_rows={PART_ROWS}"), run=run_here)
    whole = scored(folder / "out")
    fail(folder / "out", dict.fromkeys(range(3, count, PART_ROWS), "engine_timeout"))
    return whole


def failures(folder: Path) -> list[int]:
    """The responses of each part that have failed, as the parts' names say."""
    return [part.counts.failed for path in parts_of(folder) if (part := Part.parse(path.name)) is not None]


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_killed_retry_leaves_old_parts_and_new_ones_and_goes_on(tmp_path: Path) -> None:
    whole, folder = with_failures(tmp_path, ROWS), tmp_path / "out"
    count = len(failures(folder))
    assert sum(failures(folder)) == ROWS // PART_ROWS
    sound = failures(folder).count(0)
    with running("retry", folder) as driver:
        wait_until(lambda: failures(folder).count(0) >= sound + 20, driver)
        kill(driver)
    assert sum(failures(folder)) > 0, "something is still to be retried"
    (noted,) = json.loads((folder / "manifest.json").read_text())["retries"]
    assert (noted["before"]["failed"], noted["after"]) == (ROWS // PART_ROWS, None)
    assert summary("verify", folder, "--sample", 0, run=run_here)["bad"] == {}
    now = scored(folder)
    assert len(now) == ROWS
    assert all(row == as_it_was for row, as_it_was in zip(now, whole, strict=True) if row["status"] == "scored")

    after = summary("retry", folder, run=run_here)["after"]
    assert (after["scored"], after["failed"]) == (ROWS, 0)
    assert failures(folder) == [0] * count
    assert scored(folder) == whole
    sample = summary("verify", folder, "--sample", 300, run=run_here)["sample"]
    assert (sample["compared"], sample["difference"], sample["flips"]) == (300, 0.0, [])


@pytest.mark.long
@pytest.mark.usefixtures("s3_ray")
def test_a_bucket_is_verified_repaired_and_retried(s3: Any, tmp_path: Path) -> None:
    whole = with_failures(tmp_path, 100)
    s3.put(str(tmp_path / "out"), f"{BUCKET}/out", recursive=True)
    s3.pipe_file(f"{BUCKET}/c.jsonl", (tmp_path / "c.jsonl").read_bytes())
    place = f"{BUCKET}/out"
    assert summary("retry", place, run=run_here)["after"] == {"rows": 100, "scored": 100, "rejected": 0, "failed": 0}
    assert len(s3.ls(f"{place}/parts")) == 100 // PART_ROWS

    damaged = sorted(s3.ls(f"{place}/parts"))[4]
    content = bytearray(s3.cat_file(damaged))
    content[len(content) // 2] ^= 1
    s3.pipe_file(damaged, bytes(content))
    refused = run_here("verify", place, "--sample", 0)
    assert refused.returncode == 4
    assert damaged.rsplit("/", 1)[1] in refused.stdout + refused.stderr
    assert run_here("verify", place, "--sample", 0, "--repair").returncode == 0
    assert s3.glob(damaged) == []

    local = tmp_path / "fetched"
    s3.get(place, str(local), recursive=True)
    with_gap = {row["row"] for row in scored(local)}
    assert len(with_gap) == 90
    assert [row for row in whole if row["row"] in with_gap] == scored(local)
