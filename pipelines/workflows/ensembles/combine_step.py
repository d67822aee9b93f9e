"""Writes the parts of the combined corpus: the first member's rows, with the combined results beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.folders.run_folder.columns import PROMPT_HASH, RESPONSE, ROW, TEXT, Columns
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table

COMBINED = ("reward", "scores", "status", "reason", "tokens", "truncated", "suspect")
"""The combined results of a response of an ensemble, in the order in which a scored corpus has them."""


@dataclass(frozen=True)
class CombineStep:
    """The settings that a worker needs. Rows come from the first member's parts, and go to parts of the same ranges."""

    source: Parts
    target: Parts
    columns: Columns
    combined: Sequence[str]
    metadata: Mapping[str, str]


def write_parts(step: CombineStep, parts: Sequence[Part], numbers: pa.Table) -> int:
    """Write parts; `numbers` has a row per response of them. Returns the number of responses.

    Idempotent: a retry writes the same, and a part that is committed already is left alone.
    """
    first = 0
    for part in parts:
        rows = read_table(step.source.path(part))
        table = _combined_rows(step, rows, numbers.slice(first, rows.num_rows))
        first += rows.num_rows
        step.target.commit(part._replace(counts=_counts(step, part, table), run=""), table, step.metadata)
    return first


def _combined_rows(step: CombineStep, rows: pa.Table, numbers: pa.Table) -> pa.Table:
    """The first member's rows, and its examples, with the combined results, which have a row per row, in the same order."""
    columns = step.columns
    names = [*columns.repeated.names, *(columns.prefix + name for name in (ROW, RESPONSE, PROMPT_HASH))]
    if columns.text:
        names.append(columns.prefix + TEXT)
    combined = numbers.select(list(step.combined))
    table = pa.table([*rows.select(names).columns, *combined.columns], columns.schema.names).cast(columns.schema)
    return table.replace_schema_metadata(rows.schema.metadata)


def _counts(step: CombineStep, part: Part, table: pa.Table) -> Counts:
    return Counts.of_statuses(part.counts.rows, table.column(step.columns.prefix + "status").to_pylist())
