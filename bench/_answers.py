"""Reads sampled answers to arithmetic questions, and checks them."""

import itertools
import json
from pathlib import Path
from typing import NamedTuple

from pipelines.folders.run_folder.parts import Parts, read_table
from tiny_models.arithmetic import is_right


class Answered(NamedTuple):
    """A candidate: whether it is right, and its reward if it has one."""

    right: bool
    reward: float | None


def read_answers(output: Path) -> list[list[Answered]]:
    """The candidates of each prompt, in order, of a corpus that `tiny_models.arithmetic` wrote."""
    parts = Parts(str(output))
    tables = [read_table(parts.path(part)) for part in parts.listing()]
    rows = [row for table in tables for row in table.to_pylist()]
    return [
        [
            Answered(is_right(json.loads(row["record"])["answer"], row["candidate"] or ""), row["reward"])
            for row in candidates
        ]
        for _, candidates in itertools.groupby(rows, key=lambda row: row["row"])
    ]
