"""Warns, once per process, when a lazy dataset is scored for the second time: Ray Data runs all steps anew for each use.

A dataset that is used once, or was materialised first, gets no warning.
"""

import functools
import warnings
from collections import Counter
from typing import Any

from ray.data import Dataset
from ray.data._internal.execution.execution_callback import ExecutionCallback

_EXECUTIONS: Counter[int] = Counter()
"""By the identity of a step's first constructor argument: how often it was executed."""


def warn_of_repeats(dataset: Dataset, argument: object) -> None:
    """Watch the executions of a dataset with a step whose first constructor argument is `argument`."""
    _EXECUTIONS.pop(id(argument), None)  # the identity of an object that is gone may come again
    # The context is shared with the datasets that this one was made of, and with those that will be made of it.
    callback: Any = functools.partial(_RepeatWatch, id(argument))
    dataset.context.custom_execution_callback_classes = [*dataset.context.custom_execution_callback_classes, callback]


class _RepeatWatch(ExecutionCallback):
    def __init__(self, step: int) -> None:
        self._step = step

    def before_execution_starts(self, executor: Any) -> None:
        """Count the execution, if the step is part of it."""
        operators = (logical for operator in executor._topology for logical in operator._logical_operators)
        steps = {id(argument) for logical in operators for argument in (getattr(logical, "fn_constructor_args", None) or ())}
        if self._step in steps:
            _EXECUTIONS[self._step] += 1
            if _EXECUTIONS[self._step] == 2:
                _warn()


@functools.cache
def _warn() -> None:
    warnings.warn(
        "this dataset is lazy, and is scored again now, as each time that it is used: to score it once, call .materialize() "
        "on it and use what that returns",
        stacklevel=2,
    )
