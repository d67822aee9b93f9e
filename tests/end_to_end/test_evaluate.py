"""Benchmark files are scored by two models and evaluated by one command, which is killed in between and resumed."""

import json
from pathlib import Path

import pytest

from tests.support.commands import assay, parts_of, running, stamps, wait_until
from tests.support.corpora import lines, write

SLOW = ("--engine", "fake", "--set", "engine.engine_args.latency_s=0.05", "--set", "engine.max_in_flight=8")


@pytest.mark.long
def test_a_killed_evaluation_is_resumed_and_accounts_for_every_item(tmp_path: Path) -> None:
    rows = [
        {"id": number, "prompt": f"What is {number} + 1?", "chosen": f"It is {number + 1}.", "rejected": f"{number}"}
        for number in range(300)
    ]
    corpus = write(tmp_path / "pairs.jsonl", lines([*rows, {"prompt": "?", "chosen": None, "rejected": "x"}]))
    models, out = ("--model", "tiny-scalar", "--model", "tiny-attributes"), tmp_path / "out"
    command = ("evaluate", f"pairs={corpus}", *models, "--out", out, *SLOW)
    first = out / "scored" / "pairs" / "tiny-scalar"
    with running(*command) as driver:
        wait_until(lambda: len(parts_of(first)) > 1, driver)
        driver.kill()
        driver.wait(60)
    early = stamps(first)
    done = assay(*command, "--json")
    assert done.returncode == 0, done.stderr
    assert early.items() <= stamps(first).items(), "what was committed isn't scored again"
    results = json.loads(done.stdout)["evaluations"]
    assert [result["model"] for result in results] == ["tiny-scalar", "tiny-attributes"]
    for result in results:
        (counts,) = result["subsets"].values()
        assert (counts["items"], counts["graded"]) == (301, 300)
        assert sum(counts["reasons"].values()) == 1
        assert result["figures"][0]["n"] == 300
    assert "made up" in (out / "table.md").read_text()
