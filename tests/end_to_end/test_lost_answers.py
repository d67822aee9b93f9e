"""Answers to calls between processes are lost on the way, by Ray's fault injection; the output is as if none were.

In every process the first calls fail after they were done: those of an engine's actor to the ledger among them.
"""

import json
from pathlib import Path

import pytest

from tests.support.commands import assay
from tests.support.corpora import lines, outcome_of, rows, write

LOST_PER_PROCESS = 8
"""An engine's actor calls the ledger about five times at its start, and then at least three times a block."""

FAULTS = {
    "CoreWorkerService.grpc_client.PushTask": {
        "num_failures": LOST_PER_PROCESS,
        "num_lower_bound_resp_failures": LOST_PER_PROCESS,
    }
}


@pytest.mark.long
def test_a_lost_answer_neither_ends_a_run_nor_counts_as_a_death(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", lines(rows(8)))
    command = ("score", corpus, tmp_path / "out", "--model", "tiny-attributes", "--engine", "fake")
    run = assay(*command, RAY_testing_rpc_failure=json.dumps(FAULTS))
    assert run.returncode == 0, run.stderr
    assert outcome_of(tmp_path / "out") == [("scored", None)] * 8
    assert "engines died" not in run.stderr
