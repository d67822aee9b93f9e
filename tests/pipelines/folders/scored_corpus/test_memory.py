"""The driver's memory while a corpus is summarised doesn't grow with its parts."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench._scored_corpora import write_scored
from tests.conftest import REPOSITORY

PROGRAM = """
import resource, sys
from pipelines.folders.scored_corpus.scored_folder import open_scored
from pipelines.folders.scored_corpus.summary import summarise
corpus = open_scored(sys.argv[1], "report")
summarise(corpus.responses.parts, corpus.manifest.columns, corpus.counts)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
"""Prints the peak of its resident memory in KiB."""

PARTS, FEW = 1500, 300


def peak(folder: Path, parts: int) -> int:
    """The bytes that a process takes for the summary of so many parts of ten rows."""
    schema = pa.schema([("prompt", pa.string())])
    rewards = np.random.default_rng(1).random(parts * 10)
    write_scored(
        folder,
        rewards,
        schema,
        lambda numbers: {
            "prompt": [str(number) for number in numbers],
            "prompt_hash": [f"{number:032x}" for number in numbers],
        },
        part_rows=10,
    )
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=True)
    return int(done.stdout) * 1024


@pytest.mark.long
def test_a_part_takes_a_few_kilobytes_of_the_driver(tmp_path: Path) -> None:
    """It was 45,000 bytes: Arrow kept all parts' footers, and DuckDB's `histogram` something of each batch of rows."""
    few, many = (peak(tmp_path / str(parts), parts) for parts in (FEW, PARTS))
    assert (many - few) / (PARTS - FEW) < 8000
