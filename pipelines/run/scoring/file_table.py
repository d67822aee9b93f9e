"""What the actors of a run know of its input files: of a million, a copy on each node instead of one in each process."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

import pyarrow as pa

T = TypeVar("T")


class ByFile(Mapping[int, T]):
    """Values by the index of a file, of which some have none.

    An Arrow array holds them: what Ray's object store gives to the processes of a node isn't copied into each.
    """

    def __init__(self, values: pa.Array) -> None:
        """The value of each index; null where there is none."""
        self._values = values

    @classmethod
    def of(cls, values: Mapping[int, T], kind: pa.DataType) -> Self:
        """The values as an array of an Arrow type."""
        return cls(pa.array([values.get(index) for index in range(max(values, default=-1) + 1)], kind))

    def __getitem__(self, index: int) -> T:
        value: T | None = self._values[index].as_py() if 0 <= index < len(self._values) else None
        if value is None:
            raise KeyError(index)
        return value

    def __iter__(self) -> Iterator[int]:
        return (index for index, value in enumerate(self._values) if value.is_valid)

    def __len__(self) -> int:
        return len(self._values) - self._values.null_count


@dataclass(frozen=True)
class FileTable:
    """The names of a run's files, and the extents of those that may share a part (`score_step.stretches`)."""

    names: Mapping[int, str]
    small_extents: Mapping[int, int]
