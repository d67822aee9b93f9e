"""What parts cover of the input: proves by their names that they tile it, and finds what is missing."""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from actors.errors import AuditError
from pipelines.data.corpus.corpus_files import InputFile, Range
from pipelines.folders.run_folder.part import Counts, Part


class Piece(NamedTuple):
    """What a part covers of one file."""

    part: Part
    range: Range


def file_by_file(parts: Iterable[Part], extents: Mapping[int, int | None]) -> Iterator[tuple[int, Iterator[Piece]]]:
    """What sorted parts cover of each file of which they cover something, by its index, in the order of files.

    `extents` are those of all files. Holds only what parts cover of files that come later: the pieces of a file are to be
    taken before the next file.
    """
    grouped = itertools.groupby(_pieces(parts, extents), key=lambda piece: piece[0])
    return ((index, (piece for _, _, piece in pieces)) for index, pieces in grouped)


def _pieces(parts: Iterable[Part], extents: Mapping[int, int | None]) -> Iterator[tuple[int, int, Piece]]:
    """The pieces of sorted parts, in the order of files and then of parts, each with both numbers."""
    later: list[tuple[int, int, Piece]] = []  # a heap of what parts of several files cover behind their first file
    for number, part in enumerate(parts):
        # Earlier parts come first, also in the file in which this one begins.
        while later and later[0][0] <= part.file:
            yield heapq.heappop(later)
        for index, piece in part.pieces(extents):
            entry = (index, number, Piece(part, piece))
            if index == part.file:
                yield entry
            else:
                heapq.heappush(later, entry)
    while later:
        yield heapq.heappop(later)


def gaps(done: Sequence[Range], extent: int) -> list[Range]:
    """The ranges that `done` leaves open in [0, extent). `done` must be sorted and without overlaps (`merge_ranges`).

    Both bounds are in the file's own positions: bytes of lines, rows of Parquet and arrays.
    """
    # Empty ranges at both ends turn the first and the last gap into gaps between neighbours.
    edges = [Range(0, 0), *done, Range(extent, extent)]
    between = (Range(before.end, after.start) for before, after in itertools.pairwise(edges))
    return [gap for gap in between if gap.start < gap.end]


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Sorted ranges with overlapping ones merged, as `gaps` takes them. Ranges that only touch stay apart.

    Only parts that a late writer left overlap: the gaps are those of all of them, until a repair drops the younger ones.
    """
    merged: list[Range] = []
    for piece in ranges:
        if merged and piece.start < merged[-1].end:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, piece.end))
        else:
            merged.append(piece)
    return merged


def audit(
    files: Sequence[InputFile], extents: Mapping[int, int | None], parts: Sequence[Part], *, partial: bool = False
) -> Counts:
    """Prove from the names that every file is covered exactly once, to its end; returns the total counts.

    With `partial` something may be missing, but nothing may be there twice or beyond an end that is known. `parts` are
    sorted. Raises `AuditError`, naming up to 20 gaps, overlaps and contradictions.
    """
    files_by_index = {file.index: file for file in files}
    # First, as all that follows looks files up by their index.
    if strangers := {index for part in parts for index in (part.file, part.last_file)} - files_by_index.keys():
        raise AuditError(f"some parts belong to files that the manifest doesn't list: {sorted(strangers)}")
    problems = itertools.chain(
        _all_problems(files, extents, parts, partial),
        (problem for part in parts for problem in _wrong_rows(part, files_by_index, extents)),
    )
    # With wrong extents each part is a problem: the first ones show which.
    if named := list(itertools.islice(problems, 20)):
        raise AuditError("the parts don't add up to the input:\n  " + "\n  ".join(named))
    return sum((part.counts for part in parts), Counts())


def _all_problems(
    files: Sequence[InputFile], extents: Mapping[int, int | None], parts: Sequence[Part], partial: bool
) -> Iterator[str]:
    covered = file_by_file(parts, extents)
    index, pieces = next(covered, (-1, iter(())))
    for file in sorted(files, key=lambda file: file.index):
        if file.index == index:
            yield from _problems(file, extents[index], pieces, partial)
            index, pieces = next(covered, (-1, iter(())))
        elif not partial:
            yield from _problems(file, extents[file.index], (), partial)


def _problems(file: InputFile, extent: int | None, pieces: Iterable[Piece], partial: bool) -> Iterator[str]:
    if extent is None and not partial:
        yield f"{file.name}: not all of its rows are in the parts"
        return
    covered = 0
    for part, piece in pieces:
        if piece.start < covered:
            yield f"{file.name}: {piece.start} to {covered} is there twice ({part.name})"
        elif piece.start > covered and not partial:
            yield f"{file.name}: {covered} to {piece.start} is missing"
        covered = max(covered, piece.end)  # max, so that a part inside an earlier one is reported once
    if extent is None:
        return
    if covered < extent and not partial:
        yield f"{file.name}: {covered} to {extent} is missing"
    elif covered > extent:
        yield f"{file.name}: there are parts beyond its end at {extent}"


def _wrong_rows(part: Part, files: Mapping[int, InputFile], extents: Mapping[int, int | None]) -> Iterable[str]:
    # What is impossible about a part's number of rows.
    # A position of Parquet and arrays is a row, so there the number must equal the length. Of lines only an empty range is
    # impossible.
    lengths = {index: piece.end - piece.start for index, piece in part.pieces(extents)}
    length = sum(lengths.values())
    by_ordinal = all(files[index].kind.by_ordinal for index in lengths)
    if length <= 0 or (by_ordinal and part.counts.rows != length):
        yield f"{files[part.file].name}: {part.name} says that {length} positions hold {part.counts.rows} rows"
