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
from pipelines.settings.filter_settings import ChoiceSettings


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
        return _rows(None, corpus, choice, names)
    check(choice)
    columns = corpus.manifest.columns
    evaluator = ResponseEvaluator.of(choice, columns.prefix, columns.ours_first, within_row=columns.within_row)
    return _rows(FilterStep(corpus.responses, columns, evaluator), corpus, choice, names)


def _rows(step: FilterStep | None, corpus: OpenedCorpus, choice: ChoiceSettings, names: list[str]) -> Iterator[MarkedRows]:
    groups = groups_of(corpus.entries)
    reads = list(dict.fromkeys([*names, *(step.reads if step else ())]))
    evaluate = step.evaluator.compile() if step else None
    # In this process, which reads the parts anyway.
    with ExitStack() as stack, workers(1) as pool:
        chosen = None
        if step and step.evaluator.ranking:
            chosen = stack.enter_context(choose(pool, choice, [(step, group) for group in groups]))
        for group in groups:
            selection = chosen.selection(group[0].number, group[-1].number) if chosen else None
            for number, part in group:
                first = 0
                for table in corpus.responses.tables(part, reads):
                    kept = None
                    if step and evaluate:
                        kept = _mask(selection, step.evaluator.evaluate(number, first, table, evaluate))
                    yield MarkedRows(number, first, table, kept)
                    first += table.num_rows


def _mask(selection: Selection | None, rows: EvaluatedRows) -> NDArray[np.bool_]:
    if selection is None:
        return rows.met
    chosen = pc.is_null(selection.reasons(rows)).to_numpy(zero_copy_only=False)
    return np.asarray(rows.met & ~np.isnan(rows.values) & chosen)
