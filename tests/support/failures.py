"""Scored folders with responses that have failed, as if an engine had broken, and with other rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.part_content import encode
from pipelines.folders.run_folder.parts import Parts


def metadata_of(table: pa.Table) -> dict[str, str]:
    """What a part says of itself."""
    return {key.decode(): value.decode() for key, value in table.schema.metadata.items()}


def rewrite(path: Path, table: pa.Table) -> None:
    """Put other rows into a part, as if the run had committed them."""
    part = Part.parse(path.name)
    assert part is not None
    path.write_bytes(encode(table, metadata_of(table), part.place))


def fail(folder: Path, failures: Mapping[int, str], prefix: str = "") -> None:
    """Let responses, by their number in the corpus, have failed for a reason."""
    parts, first = Parts(str(folder)), 0
    for part in parts.listing():
        table = pq.read_table(parts.path(part))
        responses = table.to_pylist()
        wanted = {number - first: reason for number, reason in failures.items() if 0 <= number - first < len(responses)}
        first += len(responses)
        for index, reason in wanted.items():
            failed = {"status": "failed", "reason": reason, "reward": None, "scores": None}
            responses[index] |= {prefix + name: value for name, value in failed.items()}
        if wanted:
            rows, scored, rejected, failed_before = part.counts
            counts = Counts(rows, scored - len(wanted), rejected, failed_before + len(wanted))
            parts.parts_folder.delete(part.name)
            failed_table = pa.Table.from_pylist(responses, table.schema)
            assert parts.commit(part._replace(counts=counts), failed_table, metadata_of(table))


def change(folder: Path, number: int, column: str, changed: Callable[[list[Any]], list[Any]]) -> pa.Table:
    """Put other values into a column of the part of this number; returns what the part was."""
    parts = Parts(str(folder))
    part = parts.listing()[number]
    table = pq.read_table(parts.path(part))
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    values = pa.array(changed(table.column(column).to_pylist()), field.type)
    parts.replace(part, part, table.set_column(index, field, values), metadata_of(table))
    return table
