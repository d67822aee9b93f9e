"""What the result files of a benchmark's own code are made of: its rows with their rewards, and who judged them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.results.evaluation.benchmark import Item


class MissingField(Exception):
    """A row lacks a field that a file holds; the text says which row and field."""


class InputRow(dict[str, Any]):
    """The fields of the input row `name`. To read one that it lacks raises `MissingField`."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.name = name

    def __missing__(self, field: str) -> Any:
        raise MissingField(f"row {self.name} has no field {field!r}")


class GradedRow(NamedTuple):
    """An input row as it was, with all rewards that its grade needs."""

    fields: InputRow
    item: Item


@dataclass(frozen=True)
class JudgedRun:
    """Who judged: the model's name, and whether it writes its judgements, or is a reward head.

    `subsets` has the figure of each subset, from 0 to 1 (RewardBench 2's Ties to 1.01), of those that have one.
    """

    model: str
    writes: bool
    subsets: dict[str, float]


@dataclass(frozen=True)
class PeerFormat:
    """The result files of the code of `benchmark`: `files` gives their names and contents.

    What it gives before it raises `MissingField` is written; the rest isn't, and the user is told why.
    """

    benchmark: str
    files: Callable[[Iterable[GradedRow], JudgedRun], Iterator[tuple[str, bytes]]]


def json_bytes(document: object) -> bytes:
    """A document on one line. Numbers are the shortest that are read as the same double."""
    return (json.dumps(document, default=str) + "\n").encode()
