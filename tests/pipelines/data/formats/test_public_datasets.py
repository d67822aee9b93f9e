"""Each public data set is read by itself, or by the settings that its entry names, or refused with the reason.

The rows come as a run gets them: parsed from a line of JSON, and as the objects of Python that a Parquet file gives.
"""

import functools
import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import UserError
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import ModelSettings, RenderSettings
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.formats import RowRequests, parse
from pipelines.folders.run_folder.columns import Columns
from pipelines.run.prepare.choose_shape import preview_of
from pipelines.run.prepare.preview import check_preview
from pipelines.run.prepare.score_requests import Preparation
from pipelines.settings.run_settings import RowSettings
from tests.pipelines.data.formats.public_rows import PUBLIC_SETS, PublicSet, Reading
from tests.support.asked import account, contexts, judged, refused


def as_json(public: PublicSet) -> list[Any]:
    return [parse(json.dumps(row, default=str).encode()) for row in public.rows]


def as_parquet(public: PublicSet) -> list[Any]:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(public.rows), public.schema), file)
    return python_rows(pq.read_table(file))


@functools.cache
def model() -> RewardModel:
    return resolve_model(ModelSettings(model="tiny-attributes"), RenderSettings())


def read(public: PublicSet, rows: Sequence[Any]) -> list[RowRequests]:
    """The requests of the rows, which a run would begin with."""
    preview = preview_of(RowSettings(**public.options), rows, unanswered=public.prompts)
    columns = Columns(pa.schema([]), (), "", text=True)
    check_preview(preview, Preparation(model(), RenderSettings(), preview.row_shape, columns))
    return [preview.row_shape.requests(row) for row in rows]


def check(public: PublicSet, rows: Sequence[Any]) -> None:
    if public.refusal:
        with pytest.raises(UserError, match=public.refusal):
            read(public, rows)
        return
    row_requests = read(public, rows)
    if not public.prompts:  # whose responses are yet to be written
        for requests in row_requests:
            account(requests)
    readings = [Reading(contexts(requests), judged(requests), refused(requests)) for requests in row_requests]
    expected = [
        Reading([list(context) for context in row.contexts], dict(row.responses), dict(row.rejected))
        for row in public.readings
    ]
    assert readings == expected


def test_a_public_dataset_as_json() -> None:
    for public in PUBLIC_SETS:
        check(public, as_json(public))


def test_a_public_dataset_as_parquet() -> None:
    publics: list[PublicSet] = [each for each in PUBLIC_SETS if each.schema]
    for public in publics:
        check(public, as_parquet(public))


def test_every_row_of_a_set_has_its_expectation() -> None:
    names = [public.name for public in PUBLIC_SETS]
    assert len(set(names)) == len(names)
    for public in PUBLIC_SETS:
        assert bool(public.readings) != bool(public.refusal), public.name
        assert public.refusal or len(public.readings) == len(public.rows), public.name
