"""Writes scored corpora of made-up rewards without scoring anything: what steps after scoring are measured on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts

RUN = "0a1b2c3d4e5f6071"
_IDENTITY: dict[str, object] = {
    "model": "made up",
    "prefix": "",
    "shape": "prompt-response",
    "turns": "final",
    "own_columns": None,
    "fields": {},
    "written_out": False,
}


def write_scored(
    folder: Path,
    rewards: NDArray[np.float64],
    carried: pa.Schema,
    values: Callable[[range], Mapping[str, Any]],
    *,
    part_rows: int,
    kind: FileKind = FileKind.PARQUET,
    text: bool = False,
) -> None:
    """Write a corpus of one response a row, all scored, in parts of `part_rows`.

    `values` gives the carried columns of some rows by name, and `prompt_hash`; with `text`, `response_text` as well.
    """
    columns = Columns(carried, ("grade",), "", text=text)
    parts, name = Parts(str(folder), RUN), f"corpus.{kind.value}"
    parts.create()
    for start in range(0, rewards.size, part_rows):
        chunk = rewards[start : start + part_rows]
        numbers = range(start, start + chunk.size)
        ours = {
            "row": [f"{name}:{number}" for number in numbers],
            "response_name": ["final"] * chunk.size,
            "reward": chunk,
            "scores": pa.StructArray.from_arrays([pa.array(chunk)], ["grade"]),
            "status": ["scored"] * chunk.size,
            "reason": pa.nulls(chunk.size, pa.string()),
            "prompt_tokens": np.ones(chunk.size, np.int32),
            "truncated": [False] * chunk.size,
        }
        part = Part(0, Range(start, start + chunk.size), Counts(chunk.size, chunk.size))
        parts.commit(part, pa.table({**values(numbers), **ours}).select(columns.schema.names).cast(columns.schema), {})
    file = InputFile(0, name, f"/{name}", kind, 1, "sha256-of-ends:0", rewards.size)
    Manifest(_IDENTITY, (file,), columns, {}, run=RUN).write(str(folder))
