"""A store around a scorer: it answers what it holds, equal requests of this process are asked once, and the rest is kept.

`StoredScores` scores the blocks of a run; `online_scores.py` does the same for the requests of an endpoint.

1. Cut the requests into units, and find those that are in the store, each segment read once for a block.
2. Ask the scorer for the others, each once: a unit that another thread has asked for is waited for.
3. Keep lasting outcomes. They are written as a segment when there are `_ENTRIES` of them, when the oldest has waited for
   `_WRITE_S`, and when no block is in work, so that nothing is left when the work ends.

Whatever is wrong with the store costs work, and never a run: it is reported, and what can't be read is scored.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from actors.errors import SourceError
from actors.launch.start_engine import Report
from actors.records import RenderedRequest
from actors.scorers.head_scorer import ScoreBlock, Scores
from pipelines.data.storage import Folder, error_text
from pipelines.folders.score_store.entries import StoredUnit, decode, encode, is_lasting, key_of, units_of
from pipelines.folders.score_store.key_index import KeyIndex, Place
from pipelines.folders.score_store.segments import entries_at, keys_in, read_content, segment_names, write_segment

# A segment is written at this size or age: large enough for few files, early enough to lose little.
_ENTRIES = 4096
_BYTES = 8 * 2**20
_WRITE_S = 30.0
_LOOK_S = 60.0  # seconds between two looks for other processes' segments: a listing of 1,000 names is a request
_LOOK_SHARE = 20  # and a look that takes long comes so many times more rarely
_READERS = 8


class UnitOutcome(NamedTuple):
    """What a unit came to, as it is stored; `lasts` if it may be.

    `value` is as `encode` wrote it. What doesn't last is passed on to those who wait, and then forgotten.
    """

    value: bytes
    lasts: bool


@dataclass(frozen=True)
class Lookup:
    """What a store knows of some requests. `missing` is to be scored, and its outcomes go into `outcomes`, or `ready`."""

    requests: Sequence[RenderedRequest]
    units: Sequence[Sequence[tuple[bytes, StoredUnit]]]
    missing: Mapping[bytes, StoredUnit]
    ready: dict[bytes, Scores]
    outcomes: dict[bytes, UnitOutcome]

    def scores(self) -> list[Scores]:
        return [
            _assemble(request, units, self.ready, self.outcomes)
            for request, units in zip(self.requests, self.units, strict=True)
        ]


class StoredUnits:
    """The store of one identity, as a process sees it. May be called from several threads at a time."""

    def __init__(self, folder: Folder, identity: str, report: Report, *, compares: bool) -> None:
        """`identity` is the digest whose folder it is, `compares` as in `units_of`; `report` gets what goes wrong."""
        self._folder = folder
        self._identity = identity
        self._report = report
        self._compares = compares
        self._index = KeyIndex()
        self._index_lock = threading.Lock()  # held for as long as a segment takes to be added
        self._lock = threading.Lock()  # of all that follows
        self._in_progress: dict[bytes, Future[UnitOutcome]] = {}
        self._unwritten: dict[bytes, bytes] = {}
        self._being_written: dict[bytes, bytes] = {}
        self._unwritten_since = 0.0
        self._look_lock = threading.Lock()
        self._next_look = 0.0

    # Look-ups.

    def look_up(self, requests: Sequence[RenderedRequest]) -> Lookup:
        by_request = [
            [(key_of(self._identity, unit), unit) for unit in units_of(request, compares=self._compares)]
            for request in requests
        ]
        # Equal requests of a block are scored once, and the others get what the first one gets.
        unit_by_key = dict[bytes, StoredUnit]()  # in the order of the requests: neighbours may share a forward pass
        for key, unit in itertools.chain.from_iterable(by_request):
            unit_by_key.setdefault(key, unit)
        ready, outcomes = self._find(unit_by_key)
        missing = {key: unit for key, unit in unit_by_key.items() if key not in ready}
        return Lookup(requests, by_request, missing, ready, outcomes)

    def _read_new_segments_if_due(self) -> None:
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
            with self._index_lock:
                new = self._index.lacking(names)
        except OSError as error:
            self._report(f"the store {self._folder.path} can't be listed, so that more is scored: {error_text(error)}")
            return
        # Segments are read concurrently, since each is a request, and so many at a time, since their bytes are in memory.
        with ThreadPoolExecutor(_READERS) as threads:
            for start in range(0, len(new), _READERS):
                batch = new[start : start + _READERS]  # whose bytes are in memory at a time
                for name, content in zip(batch, threads.map(self._content, batch), strict=True):
                    if content is not None:
                        self._add(name, content)

    def _add(self, name: str, content: bytes) -> None:
        with self._report_errors_of(name):
            keys = keys_in(self._folder, name, self._identity, content)
            with self._index_lock:
                self._index.add(name, keys, content)

    def _content(self, name: str) -> bytes | None:
        with self._report_errors_of(name):
            with self._index_lock:
                content = self._index.content(name)
            return read_content(self._folder, name) if content is None else content
        return None

    @contextmanager
    def _report_errors_of(self, name: str) -> Iterator[None]:
        """Report what is wrong with a segment, and go on without it; what can't be trusted is never looked at again."""
        try:
            yield
        except SourceError as error:
            with suppress(OSError), self._index_lock:
                self._index.drop(name)
            self._report(
                f"{error}; it is left out, and what it holds is scored again. If that writes the same content, the file is "
                "whole again; if a later run names it again, delete it"
            )
        except OSError as error:
            self._report(f"{self._folder.file(name)} can't be used, so that more is scored: {error_text(error)}")

    def _find(self, units: Mapping[bytes, StoredUnit]) -> tuple[dict[bytes, Scores], dict[bytes, UnitOutcome]]:
        with self._lock:
            recent = (self._unwritten, self._being_written)
            values = {key: values_by_key[key] for values_by_key in recent for key in units if key in values_by_key}
        # By segment, so that each file is opened once for a block: in an object store, opening one costs a request.
        by_segment: dict[str, list[int]] = defaultdict(list)
        for place in self._places([key for key in units if key not in values]).values():
            by_segment[place.segment].append(place.row)
        for name, rows in by_segment.items():
            with self._report_errors_of(name):
                if (content := self._content(name)) is not None:
                    values |= {key: value for key, value in entries_at(content, rows) if key in units}
        scores = dict[bytes, Scores]()
        for key, value in values.items():
            try:
                scores[key] = decode(units[key], value)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                self._report(
                    f"{self._folder.path} holds scores of a form that can't be read, and they are left out: {error}"
                )
        return scores, {key: UnitOutcome(values[key], True) for key in scores}

    def _places(self, keys: Sequence[bytes]) -> Mapping[bytes, Place]:
        try:
            with self._index_lock:
                return self._index.places(keys)
        except OSError as error:
            self._report(f"nothing is found in the store {self._folder.path}: {error_text(error)}")
            return {}

    def _recent(self, key: bytes) -> bytes | None:
        return self._unwritten.get(key) or self._being_written.get(key)

    # Scoring.

    def claim(self, units: Mapping[bytes, StoredUnit]) -> tuple[dict[bytes, "Claim"], dict[bytes, "Future[UnitOutcome]"]]:
        """Divide units into those to be scored here, and those that others are scoring or have just scored."""
        claims, awaited = dict[bytes, Claim](), dict[bytes, Future[UnitOutcome]]()
        with self._lock:
            for key, unit in units.items():
                # Looked up again, under the lock: since `_find` another thread may have begun this unit, or finished it.
                if key in self._in_progress:
                    awaited[key] = self._in_progress[key]
                elif (value := self._recent(key)) is not None:
                    awaited[key] = Future()
                    awaited[key].set_result(UnitOutcome(value, True))
                else:
                    claims[key] = self._in_progress[key] = Claim(unit)
        return claims, awaited

    @contextmanager
    def settled(self, claims: Mapping[bytes, "Claim"]) -> Iterator[None]:
        """Score in the block what was claimed, and `settle` it; else whoever waits for it gets the error."""
        try:
            yield
        except BaseException as error:  # any: a claim that is never settled would be waited for without end
            with self._lock:
                for key, claim in claims.items():
                    if self._in_progress.pop(key, None) is claim:
                        claim.set_exception(error)
            raise

    def settle(self, claims: Mapping[bytes, "Claim"], scored: Sequence[Scores]) -> dict[bytes, Scores]:
        """Tell whoever waits for what was claimed its scores, and keep those that last; returns them by key."""
        fresh = dict(zip(claims, scored, strict=True))
        outcomes = {key: UnitOutcome(encode(claims[key].unit, scores), is_lasting(scores)) for key, scores in fresh.items()}
        with self._lock:
            # The age is that of the oldest entry.
            self._unwritten_since = self._unwritten_since if self._unwritten else time.monotonic()
            for key, outcome in outcomes.items():
                if outcome.lasts:
                    self._unwritten[key] = outcome.value
                del self._in_progress[key]
                claims[key].set_result(outcome)
        return fresh

    # Writing.

    def _write_if_due(self, *, is_idle: bool) -> None:
        with self._lock:
            entries = self._unwritten
            is_large = len(entries) >= _ENTRIES or sum(map(len, entries.values())) >= _BYTES
            is_old = time.monotonic() - self._unwritten_since >= _WRITE_S
            if not entries or not (is_idle or is_large or is_old):
                return
            # Until the index has them, `_find` takes them from here: else an equal request of the next block would be scored
            # again, as a write may take seconds.
            self._unwritten = {}
            self._being_written |= entries
        try:
            segment = write_segment(self._folder, self._identity, entries)
            with self._index_lock:
                self._index.add(segment.name, list(entries), segment.content)
        except OSError as error:
            self._report(f"{self._folder.path}: scores can't be kept there: {error_text(error)}")
        with self._lock:
            for key in entries:
                self._being_written.pop(key, None)


class StoredScores(StoredUnits):
    """A scorer's `score_block`, with the store of one identity around it."""

    def __init__(self, folder: Folder, identity: str, score_block: ScoreBlock, report: Report, *, compares: bool) -> None:
        super().__init__(folder, identity, report, compares=compares)
        self._score_block = score_block
        self._blocks_in_work = 0

    def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        with self._count_block():
            self._read_new_segments_if_due()
            stored = self.look_up(requests)
            claims, awaited = self.claim(stored.missing)
            if claims:  # before anything is waited for: else two threads might wait for each other
                with self.settled(claims):
                    scored = self._score_block([claim.unit.request for claim in claims.values()])
                    stored.ready.update(self.settle(claims, scored))
            stored.outcomes.update({key: future.result() for key, future in {**claims, **awaited}.items()})
        return stored.scores()

    @contextmanager
    def _count_block(self) -> Iterator[None]:
        with self._lock:
            self._blocks_in_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks_in_work -= 1
            self._write_if_due(is_idle=not self._blocks_in_work)


class Claim(Future[UnitOutcome]):
    """A unit that one thread or request scores, and others may wait for.

    As a future it can't be cancelled, since others wait for it, too.
    """

    def __init__(self, unit: StoredUnit) -> None:
        super().__init__()
        self.unit = unit
        self.set_running_or_notify_cancel()  # from now on, nobody who waits can cancel it


def _assemble(
    request: RenderedRequest,
    units: Sequence[tuple[bytes, StoredUnit]],
    ready: dict[bytes, Scores],
    outcomes: Mapping[bytes, UnitOutcome],
) -> Scores:
    # `ready` scores are taken out, as they are those of the first unit with their key; equal ones after it have `from_store`
    scores = [response.refusal for response in request.responses]
    for key, unit in units:
        outcome = outcomes[key]
        # A failure is shared by the equal units that were asked for at that time, and is from no store.
        of_unit = ready.pop(key, None) or decode(unit, outcome.value, from_store=outcome.lasts)
        for position, score in zip(unit.positions, of_unit, strict=True):
            scores[position] = score
    return tuple(score for score in scores if score is not None)
