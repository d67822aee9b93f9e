"""Which responses of a corpus a filter would keep, by the filter's own expressions and selections."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.results.filtering.filter_corpus import check, groups_of
from pipelines.results.filtering.filter_step import EvaluatedRows, FilterStep, ResponseEvaluator, Selection
from pipelines.results.filtering.selection import choose
from pipelines.run.runtime.workers import workers
from pipelines.settings.filter_settings import ChoiceSettings


def is_filter(choice: ChoiceSettings) -> bool:
    """Whether the settings keep anything."""
    return any(value is not None for value in choice.model_dump().values())


def filter_step(corpus: OpenedCorpus, choice: ChoiceSettings) -> FilterStep | None:
    """What `filter` would do with a corpus; None if the settings keep nothing. Raises as `filter` does."""
    if not is_filter(choice):
        return None
    check(choice)
    columns = corpus.manifest.columns
    evaluator = ResponseEvaluator.of(choice, columns.prefix, columns.ours_first, within_row=columns.within_row)
    return FilterStep(corpus.responses, columns, evaluator)


def marked_rows(
    corpus: OpenedCorpus, step: FilterStep | None, choice: ChoiceSettings, names: list[str]
) -> Iterator[tuple[int, int, pa.Table, NDArray[np.bool_] | None]]:
    """The responses of a corpus in order, with the columns `names`: a part's number, the index in it, a table from there.

    Last a mask of the responses in the table that the filter keeps, None without a filter, whose `step` is that of `choice`.
    """
    groups = groups_of(corpus.entries)
    reads = list(dict.fromkeys([*names, *(step.reads if step else ())]))
    evaluate = step.evaluator.compile() if step else None
    # In this process, which reads the parts anyway.
    with ExitStack() as stack, workers(1) as pool:
        chosen = None
        if step and step.evaluator.ranking:
            # A ranking reads the corpus before: which responses are the best tenth is known after the last one.
            chosen = stack.enter_context(choose(pool, choice, [(step, group) for group in groups]))
        for group in groups:
            selection = chosen.selection(group[0].number, group[-1].number) if chosen else None
            for number, part in group:
                first = 0
                for table in corpus.responses.tables(part, reads):
                    kept = None
                    if step and evaluate:
                        kept = _mask(selection, step.evaluator.evaluate(number, first, table, evaluate))
                    yield number, first, table, kept
                    first += table.num_rows


def _mask(selection: Selection | None, rows: EvaluatedRows) -> NDArray[np.bool_]:
    if selection is None:
        return rows.met
    chosen = pc.is_null(selection.reasons(rows)).to_numpy(zero_copy_only=False)
    # A response without a value of what it is ranked by is never kept, as in `filter`.
    return np.asarray(rows.met & ~np.isnan(rows.values) & chosen)
