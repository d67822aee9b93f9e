"""A store around a scorer: it answers what it holds, equal requests of a block are asked once, and the rest is kept.

1. Cut the requests into units, and find those that are in the store, of which each segment is read once into an index.
2. Ask the scorer for the others, each once in a block.
3. Keep lasting outcomes. They are written as a segment when there are `_ENTRIES` of them, when the oldest has waited for
   `_WRITE_S`, and when no block is in work, so that nothing is left when the work ends.

Whatever is wrong with the store costs work, and never a run: it is reported, and what can't be read is scored.
"""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from actors.errors import SourceError
from actors.launch.start_engine import Report
from actors.records import RenderedRequest
from actors.scorers.head_scorer import ScoreBlock, Scores
from pipelines.data.storage import Folder, error_text
from pipelines.folders.score_store.entries import StoredUnit, decode, encode, is_lasting, key_of, units_of
from pipelines.folders.score_store.key_index import KeyIndex
from pipelines.folders.score_store.segments import entries_in, read_content, segment_names, write_segment

_ENTRIES = 4096
_BYTES = 8 * 2**20
_WRITE_S = 30.0
_LOOK_S = 60.0
"""Seconds between two looks for other processes' segments: a listing of 1,000 names is a request."""
_LOOK_SHARE = 20  # and a look that takes long comes so many times more rarely
_READERS = 8


KeyedUnit = tuple[bytes, StoredUnit]


class StoredScores:
    """A scorer's `score_block`, with the store of one identity around it. May be called from several threads at a time."""

    def __init__(
        self,
        folder: Folder,
        identity: str,
        score_block: ScoreBlock,
        report: Report,
        *,
        compares: bool,
    ) -> None:
        """`identity` is the digest whose folder it is, `compares` as in `units_of`; `report` gets what goes wrong."""
        self._folder = folder
        self._identity = identity
        self._score_block = score_block
        self._report = report
        self._compares = compares
        self._lock = threading.Lock()  # of all that follows
        self._index = KeyIndex()
        self._unwritten: dict[bytes, bytes] = {}
        self._being_written: dict[bytes, bytes] = {}
        self._unwritten_since = 0.0
        self._blocks_in_work = 0
        self._look_lock = threading.Lock()
        self._next_look = 0.0

    @property
    def index_bytes(self) -> int:
        """The bytes that the index takes on this machine's disk."""
        return self._index.size

    def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score a block as the scorer does; what isn't scored for it has `from_store`."""
        with self._count_block():
            self._read_new_segments_if_due()
            by_request = [
                [(key_of(self._identity, unit), unit) for unit in units_of(request, compares=self._compares)]
                for request in requests
            ]
            unit_by_key = dict[bytes, StoredUnit]()  # in the order of the requests: neighbours may share a forward pass
            for key, unit in itertools.chain.from_iterable(by_request):
                unit_by_key.setdefault(key, unit)
            scores, values = self._find(unit_by_key)
            fresh_scores, fresh_values = self._score({key: unit for key, unit in unit_by_key.items() if key not in scores})
            scores |= fresh_scores
            values |= fresh_values
        return [_assemble(request, units, scores, values) for request, units in zip(requests, by_request, strict=True)]

    @contextmanager
    def _count_block(self) -> Iterator[None]:
        with self._lock:
            self._blocks_in_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks_in_work -= 1
            self._write_if_due()

    # Look-ups.

    def _read_new_segments_if_due(self) -> None:
        """Take in the segments that others have written since the last look."""
        # The first look is waited for by every thread: without it their first blocks would be scored although they are
        # stored. A later one is one thread's, and the others go on with the index as it is.
        if time.monotonic() < self._next_look or not self._look_lock.acquire(blocking=self._next_look == 0.0):
            return
        try:
            if (start := time.monotonic()) >= self._next_look:  # another thread may have looked while this one waited
                self._read_new_segments()
                end = time.monotonic()
                self._next_look = end + max(_LOOK_S, _LOOK_SHARE * (end - start))
        finally:
            self._look_lock.release()

    def _read_new_segments(self) -> None:
        try:
            names = segment_names(self._folder)
            with self._lock:
                new = self._index.lacking(names)
            with ThreadPoolExecutor(_READERS) as threads:
                for start in range(0, len(new), _READERS):
                    batch = new[start : start + _READERS]  # whose entries are in memory at a time
                    for name, entries in zip(batch, threads.map(self._read_segment, batch), strict=True):
                        if entries is not None:
                            with self._lock:
                                self._index.add(name, entries)
        except OSError as error:
            self._report(f"the store {self._folder.path} can't be read, so that more is scored: {error_text(error)}")

    def _read_segment(self, name: str) -> dict[bytes, bytes] | None:
        """The entries of a segment: none, if it can't be trusted, and isn't looked at again; None if it can't be had now."""
        try:
            return entries_in(self._folder, name, self._identity, read_content(self._folder, name))
        except SourceError as error:
            self._report(
                f"{error}; it is left out, and what it holds is scored again. If that writes the same content, the file is "
                "whole again; if a later run names it again, delete it"
            )
            return {}
        except OSError as error:
            self._report(f"{self._folder.file(name)} can't be used, so that more is scored: {error_text(error)}")
            return None

    def _find(self, units: Mapping[bytes, StoredUnit]) -> tuple[dict[bytes, Scores], dict[bytes, bytes]]:
        """The scores of those units that are stored, and the form in which they are."""
        values = dict[bytes, bytes]()
        try:
            with self._lock:
                values = {key: value for key in units if (value := self._recent(key)) is not None}
                values |= self._index.find(units.keys() - values.keys())
        except OSError as error:
            self._report(f"nothing is found in the store {self._folder.path}: {error_text(error)}")
        scores = dict[bytes, Scores]()
        for key, value in values.items():
            try:
                scores[key] = decode(units[key], value)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                self._report(
                    f"{self._folder.path} holds scores of a form that can't be read, and they are left out: {error}"
                )
        return scores, values

    def _recent(self, key: bytes) -> bytes | None:
        return self._unwritten.get(key) or self._being_written.get(key)

    # Scoring.

    def _score(self, units: Mapping[bytes, StoredUnit]) -> tuple[dict[bytes, Scores], dict[bytes, bytes]]:
        """Score units, and keep what lasts to be written. Returns as `_find`."""
        if not units:
            return {}, {}
        scores = dict(zip(units, self._score_block([unit.request for unit in units.values()]), strict=True))
        values = {key: encode(unit, scores[key]) for key, unit in units.items()}
        with self._lock:
            if not self._unwritten:
                self._unwritten_since = time.monotonic()
            self._unwritten |= {key: value for key, value in values.items() if is_lasting(scores[key])}
        return scores, values

    # Writing.

    def _write_if_due(self) -> None:
        with self._lock:
            entries = self._unwritten
            is_large = len(entries) >= _ENTRIES or sum(map(len, entries.values())) >= _BYTES
            is_old = time.monotonic() - self._unwritten_since >= _WRITE_S
            if not entries or (self._blocks_in_work and not is_large and not is_old):
                return
            # Until the index has them, `_recent` finds them here: else an equal request would be scored again meanwhile.
            self._unwritten = {}
            self._being_written |= entries
        try:
            name = write_segment(self._folder, self._identity, entries)
            with self._lock:
                self._index.add(name, entries)
        except OSError as error:
            self._report(f"{self._folder.path}: scores can't be kept there: {error_text(error)}")
        with self._lock:
            for key in entries:
                self._being_written.pop(key, None)


def _assemble(
    request: RenderedRequest, units: Sequence[KeyedUnit], scores: dict[bytes, Scores], values: Mapping[bytes, bytes]
) -> Scores:
    """The scores of a request. Those in `scores` are taken out: they are those of the first unit with their key."""
    of_request = [response.refusal for response in request.responses]
    for key, unit in units:
        of_unit = scores.pop(key, None) or decode(unit, values[key])
        for position, score in zip(unit.positions, of_unit, strict=True):
            of_request[position] = score
    return tuple(score for score in of_request if score is not None)
