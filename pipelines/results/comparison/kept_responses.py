"""Which responses of a corpus a filter would keep, by the filter's own expressions and selections."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.results.filtering.filter_corpus import check, groups_of
from pipelines.results.filtering.filter_step import EvaluatedRows, FilterStep, ResponseEvaluator, Selection
from pipelines.results.filtering.selection import choose
from pipelines.run.runtime.workers import workers
from pipelines.settings.run_settings import ChoiceSettings


class MarkedRows(NamedTuple):
    """Responses of part number `part`, from index `first` on; `kept` marks those that the filter keeps, if there is one."""

    part: int
    first: int
    table: pa.Table
    kept: NDArray[np.bool_] | None


def is_filter(choice: ChoiceSettings) -> bool:
    """Whether the settings keep anything."""
    return any(value is not None for value in choice.model_dump().values())


def marked_rows(corpus: OpenedCorpus, choice: ChoiceSettings, names: list[str]) -> Iterator[MarkedRows]:
    """The responses of a corpus in order, with the columns `names`. Raises as `filter` does, before anything is read."""
    if not is_filter(choice):
        return _rows_without_marks(corpus, names)
    check(choice)
    columns = corpus.manifest.columns
    evaluator = ResponseEvaluator.of(choice, columns.prefix, columns.ours_first, within_row=columns.within_row)
    return _rows_with_marks(FilterStep(corpus.responses, columns, evaluator, None, None), corpus, choice, names)


def _rows_without_marks(corpus: OpenedCorpus, names: list[str]) -> Iterator[MarkedRows]:
    for number, (part, _) in enumerate(corpus.entries):
        first = 0
        for table in corpus.responses.tables(part, names):
            yield MarkedRows(number, first, table, None)
            first += table.num_rows


def _rows_with_marks(
    step: FilterStep, corpus: OpenedCorpus, choice: ChoiceSettings, names: list[str]
) -> Iterator[MarkedRows]:
    groups = list(groups_of(corpus.entries))
    evaluate = step.evaluator.compile()
    # In this process, which reads the parts anyway.
    with ExitStack() as stack, workers(1) as pool:
        chosen = None
        if step.evaluator.ranking:
            chosen = stack.enter_context(choose(pool, choice, [(step, group) for group in groups]))
        for group in groups:
            selection = chosen.selection(group.parts[0].number, group.parts[-1].number) if chosen else None
            for number, part in group.parts:
                first = 0
                for table in corpus.responses.tables(part, list(dict.fromkeys([*names, *step.reads]))):
                    rows = step.evaluator.evaluate(number, first, table, evaluate)
                    yield MarkedRows(number, first, table, _mask(selection, rows))
                    first += table.num_rows


def _mask(selection: Selection | None, rows: EvaluatedRows) -> NDArray[np.bool_]:
    if selection is None:
        return rows.met
    chosen = pc.is_null(selection.reasons(rows)).to_numpy(zero_copy_only=False)
    return np.asarray(rows.met & ~np.isnan(rows.values) & chosen)
