"""Combines the members' rewards of each response into a reward, scores and a flag `suspect`, and writes the parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from actors.records import Reason, Status
from pipelines.folders.run_folder.columns import PROMPT_HASH, RESPONSE, ROW, TEXT, Columns
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table
from pipelines.settings.run_settings import CombineSettings

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class CombineStep:
    """The settings that a worker needs. Rows come from the first member's parts, and go to parts of the same ranges."""

    source: Parts
    target: Parts
    columns: Columns
    members: tuple[str, ...]
    combination: CombineSettings
    metadata: Mapping[str, str]


def write_parts(step: CombineStep, parts: Sequence[Part], numbers: pa.Table) -> int:
    """Write parts; `numbers` (`Baselines.numbers`) has a row per response of them. Returns the number of responses.

    Idempotent: a retry writes the same, and a part that is committed already is left alone.
    """
    first = 0
    for part in parts:
        rows = read_table(step.source.path(part))
        table = combine_scores(step, rows, numbers.slice(first, rows.num_rows))
        first += rows.num_rows
        step.target.commit(part._replace(counts=_counts(step, part, table), run=""), table, step.metadata)
    return first


def combine_scores(step: CombineStep, rows: pa.Table, numbers: pa.Table) -> pa.Table:
    """The first member's rows with the combined results. `numbers` has a row per row, in the same order."""
    # (members, responses) each; NaN where null.
    rewards, z = (_matrix(numbers, [f"{letter}{number}" for number in range(len(step.members))]) for letter in "rz")
    u, z_of_u = _column(numbers, "u"), _column(numbers, "zu")
    scores = dict(zip(step.columns.outputs, _scores(rewards, z, u, z_of_u), strict=True))
    chosen = step.combination.combine
    reward = scores[chosen.value.replace("-", "_")]
    status, reason = numbers.column("status").combine_chunks(), numbers.column("reason").combine_chunks()
    if chosen.needs_baseline:
        # Every member scored it, but there is no z-score: its prompt has no other response, or only equal ones. Looking at
        # the first member is enough, as rewards are null for all members or for none (`align`).
        no_baseline = pa.array(np.isnan(reward) & ~np.isnan(rewards[0]))
        status = pc.if_else(no_baseline, Status.REJECTED.value, status)
        reason = pc.if_else(no_baseline, Reason.NO_BASELINE.value, reason)
    unscored = np.isnan(reward)
    names, fields = list(scores), [_nullable(np.where(unscored, np.nan, values)) for values in scores.values()]
    # Adv-RM's test: the reward is unusually high for the prompt, and so is the members' disagreement. NaN compares false.
    z_mean = scores["z_mean"]
    suspect = (z_mean > step.combination.suspect_reward) & (z_of_u > step.combination.suspect_disagreement)
    ours = [
        *(rows.column(step.columns.prefix + name) for name in (ROW, RESPONSE, PROMPT_HASH)),
        *([rows.column(step.columns.prefix + TEXT)] if step.columns.text else []),
        _nullable(reward),
        pa.StructArray.from_arrays(fields, names, mask=pa.array(unscored)),
        status,
        reason,
        numbers.column("tokens").cast(pa.int32()),
        numbers.column("truncated"),
        pa.array(suspect, mask=np.isnan(z_mean)),
    ]
    repeated = rows.select(step.columns.repeated.names)
    return pa.table([*repeated.columns, *ours], step.columns.schema.names).cast(step.columns.schema)


def _scores(rewards: Numbers, z: Numbers, u: Numbers, z_of_u: Numbers) -> list[Numbers]:
    """The scores that `members.score_fields` names, in its order. NaN of one member makes the combined numbers NaN."""
    combined = [[values.mean(0), values.min(0), values.max(0) - values.min(0)] for values in (rewards, z)]
    return [*rewards, *combined[0], *z, *combined[1], u, z_of_u]


def _counts(step: CombineStep, part: Part, table: pa.Table) -> Counts:
    responses = {
        pair["values"]: pair["counts"] for pair in pc.value_counts(table.column(step.columns.prefix + "status")).to_pylist()
    }
    return Counts(part.counts.rows, *(responses.get(status.value, 0) for status in Status))


def _matrix(table: pa.Table, names: Sequence[str]) -> Numbers:
    return np.stack([_column(table, name) for name in names])


def _column(table: pa.Table, name: str) -> Numbers:
    """A column as float64, NaN for null."""
    return np.asarray(pc.fill_null(table.column(name), float("nan")).to_numpy())


def _nullable(values: Numbers) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))
