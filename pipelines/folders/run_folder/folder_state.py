"""What a run's folder held when it was listed, as one value: what is done and what is missing follow from it.

A listing of a million parts is a thousand requests to a store. So a folder is listed when a run opens it and after each
pass, and whoever asks in between is answered from the last state.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.data.corpus.corpus_files import InputFile, Range
from pipelines.data.corpus.units import Unit, cut
from pipelines.folders.run_folder.coverage import audit, file_by_file, gaps, merge_ranges
from pipelines.folders.run_folder.part import Counts
from pipelines.folders.run_folder.part_list import PartList

# Rises where a summary holds more or other figures, or parts another order: a resume then reads all parts once more.
_MARK_VERSION = 2


class UnfinishedFile(NamedTuple):
    """A file that isn't all in the parts: its open ranges (None: its end isn't known yet), and those that are done."""

    file: InputFile
    remaining: list[Range] | None
    done: list[Range]


@dataclass(frozen=True)
class FolderState:
    """The parts in a run's folder, sorted, and where its input files end; an extent is None while it isn't known."""

    files: Sequence[InputFile]
    parts: PartList
    extents: Mapping[int, int | None]

    def unfinished_files(self) -> Iterator[UnfinishedFile]:
        done_by_file = {
            index: merge_ranges(piece.range for piece in pieces) for index, pieces in file_by_file(self.parts, self.extents)
        }
        for file in self.files:
            done, extent = done_by_file.get(file.index, []), self.extents[file.index]
            remaining = None if extent is None else gaps(done, extent)
            if remaining is None or remaining:
                yield UnfinishedFile(file, remaining, done)

    def missing(self, unit_bytes: int) -> list[Unit]:
        return [unit for file, remaining, done in self.unfinished_files() for unit in cut(file, remaining, done, unit_bytes)]

    def audit(self, *, partial: bool = False) -> Counts:
        """The total counts of the parts, by their names.

        Raises `AuditError` if anything overlaps, or is missing and not `partial`.
        """
        return audit(self.files, self.extents, self.parts, partial=partial)

    def mark(self) -> str:
        digest = hashlib.sha256(json.dumps(_MARK_VERSION).encode())
        # With sizes and times: a part that is scored again may have the same name.
        for _, entry in self.parts.entries:
            digest.update(json.dumps(entry).encode())
        return digest.hexdigest()
