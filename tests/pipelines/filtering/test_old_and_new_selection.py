"""The selections by DuckDB beside those by counting passes: the same rows, reasons and summaries."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.filtering import passes
from pipelines.filtering.filter_step import Selection
from pipelines.runtime.workers import workers
from pipelines.settings.run_settings import ChoiceSettings
from tests.pipelines.filtering.test_selection import Part, Row, parts_of, reasons_of, value
from tests.support.examples import examples

numbers = value | st.just(float("nan")) | st.sampled_from([1.0, 2.0, -0.0, 0.0])
rows_of_corpora = st.lists(
    st.builds(Row, numbers, st.integers(0, 3) | st.integers(0, 2**64 - 1), st.tuples(st.integers(0, 4), st.integers(0, 1))),
    max_size=60,
)
choices = st.one_of(
    st.builds(lambda fraction: {"top_fraction": fraction}, st.floats(0, 1, exclude_min=True)),
    st.builds(lambda q: {"quantile": q}, st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),
    st.builds(
        lambda k, gap: {"top_k": k, "min_gap": gap},
        st.integers(1, 5),
        st.none() | st.sampled_from([0.0, 0.5, 1.0, 1e300]) | st.floats(0, 10),
    ),
)


def old_reasons(rows: Sequence[Row], parts: int, settings: dict[str, Any]) -> tuple[list[str | None], dict[str, Any]]:
    choice = ChoiceSettings(**settings)
    sources = [passes.Source(Part(number), data, number) for number, data in enumerate(parts_of(rows, parts))]
    with workers(1) as pool:
        selections: list[Selection]
        if choice.top_k is None:
            boundary = passes.find_boundary(pool, choice, sources)
            selections, summary = [boundary] * parts, boundary.as_json()
        else:
            selections = [passes.join_winners(pieces) for pieces in passes.find_winners(pool, choice, sources)]
            summary = {"top_k": choice.top_k, "per": "prompt", "min_gap": choice.min_gap}
    reasons = [
        reason
        for source, selection in zip(sources, selections, strict=True)
        for evaluated in source.evaluator.evaluate(source.data)
        for reason in selection.reasons(evaluated).to_pylist()
    ]
    return reasons, summary


@examples(3000)
@given(rows_of_corpora, st.integers(1, 4), choices)
def test_both_give_the_same(rows: list[Row], parts: int, settings: dict[str, Any]) -> None:
    old, new = old_reasons(rows, parts, settings), reasons_of(rows, parts, **settings)
    # Reasons of rows that are no candidates are ignored by whoever asks.
    old_kept, new_kept = ([(at, why) for at, why in enumerate(it[0]) if rows[at].value == rows[at].value] for it in (old, new))
    assert new_kept == old_kept
    assert repr(new[1]) == repr(old[1])
