"""Progress of a run on the terminal or in a log: share done, ETA, responses and tokens per second, reasons."""

import json
import math
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from actors.text.counted import number_of
from actors.text.visible import line
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.corpus.readers import bytes_per_position
from pipelines.folders.run_folder.part import Part
from pipelines.run.runtime.screens import Notebook, Screen, Terminal, screen

_MEASURED_FILES = 10  # of a kind, read at their start to guess the bytes of a position: of a million it would take hours
_MIN_SAMPLES = 8  # parts before a speed is shown
_RECENT = 100  # parts that the speed is measured over, if there are as many
_MOST_ESTIMATED = 0.99  # 100 % would say that the run is over
_SHOWN_REASONS = 3  # more wouldn't fit into a terminal's line


class Progress:
    """Receives the events of a run as they happen. Every method does nothing here; a subclass has those that it needs."""

    def planned(self, shape_found: str) -> None:
        """The shape of the rows was determined: a sentence with the shape and the evidence for it."""

    @contextmanager
    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Iterator[Any]:
        """A context for the duration of the run; `done` are the parts of earlier sessions."""
        yield

    def part_done(self, part: Mapping[str, Any]) -> None:
        """A part was committed: its file, range, counts, tokens, and reasons as JSON."""

    def loaded(self, answered: int, under_way: int, since_ready: float) -> None:
        """The load of the engines has changed (`EngineStarts`), the first of which was ready so many seconds ago."""

    def noted(self, text: str) -> None:
        """A message for a person, such as what is waited for, or engines that died."""

    def member(self, name: str, model: str, number: int, count: int) -> None:
        """Of several models: the run of member `number` (from 1) of `count` begins, and its events follow."""

    def combined(self, done: int, count: int) -> None:
        """Of several models: `done` of `count` responses are combined."""


class ForwardingProgress(Progress):
    """Forwards all events to another progress; a base for classes that also record some."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def planned(self, shape_found: str) -> None:
        self._progress.planned(shape_found)

    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Any:
        return self._progress.running(files, done)

    def part_done(self, part: Mapping[str, Any]) -> None:
        self._progress.part_done(part)

    def loaded(self, answered: int, under_way: int, since_ready: float) -> None:
        self._progress.loaded(answered, under_way, since_ready)

    def noted(self, text: str) -> None:
        self._progress.noted(text)


class _Amounts(NamedTuple):
    """What a session has done so far, or does per second; bytes count the input of earlier sessions, too."""

    bytes: float
    rows: float
    responses: float
    tokens: float


class Meter:
    """The figures behind every display. Work is measured in positions of the input, scaled to bytes of its files.

    The speed is that of the last `_RECENT` parts: it leaves out the start of the engines, which takes minutes, and follows
    changes in the number of engines. Parts come in bursts, so it is the slope of a line through all of them. Before there
    are enough parts, it is the mean since the first engine was ready. Load is noted by another thread than parts are.
    """

    def __init__(self, files: Sequence[InputFile], done: Sequence[Part], now: float) -> None:
        # Bytes on disk per position, by file: Parquet positions are rows, others are bytes (decompressed) or elements.
        self._weights = {file.index: file.size / file.extent for file in files if file.extent}
        for kind in {file.kind for file in files if file.extent is None}:
            # Where the extent is unknown, the weight is measured at the start of up to 10 files of the kind.
            unknown = [file for file in files if file.extent is None and file.kind is kind]
            guess = statistics.fmean(map(bytes_per_position, unknown[:_MEASURED_FILES]))
            self._weights |= {file.index: guess for file in unknown}
        self._total = sum(file.size for file in files if file.extent != 0)
        self._is_estimate = any(file.extent is None for file in files)
        self._extents = {file.index: file.extent for file in files}
        self._bytes = sum(map(self._bytes_of, done))
        self.rows = 0
        self.responses = 0
        self.tokens = 0
        self.reasons: Counter[str] = Counter()
        self._began = self._ready_at = now
        self._bytes_before = self._bytes
        self._load: tuple[int, int] | None = None
        self._samples: deque[tuple[float, _Amounts]] = deque(maxlen=_RECENT)

    def add(self, part: Mapping[str, Any], now: float) -> None:
        self._bytes += self._bytes_of(Part.of_report(part))
        self.rows += part["rows"]
        self.responses += part["scored"] + part["rejected"] + part["failed"]
        self.tokens += part["tokens"]
        # A new counter, as the display's thread may be reading the present one: load is noted beside parts.
        self.reasons = self.reasons + Counter(json.loads(part["reasons"]))
        self._samples.append((now, _Amounts(self._bytes, self.rows, self.responses, self.tokens)))

    def load(self, answered: int, under_way: int, ready_at: float) -> None:
        """Note the engines' load, and that the first was ready at this moment: speeds begin there."""
        if self._load is None:
            self._ready_at = ready_at
        self._load = answered, under_way

    @property
    def has_parts(self) -> bool:
        return bool(self._samples)

    def complete(self) -> None:
        """Take all of the input for done: where a file's extent is unknown, the sum of its parts ends beside its size."""
        self._bytes, self._is_estimate = float(self._total), False

    def share(self) -> float:
        """The fraction of the input that is done, 0 to 1; below 1 while it is an estimate, as a file's extent is unknown."""
        most = _MOST_ESTIMATED if self._is_estimate else 1.0
        return min(most, self._bytes / self._total) if self._total else 1.0

    def line(self, now: float, over: bool = False) -> str:
        """All known figures in one line; `over`: the mean speed since engines were ready, and the session's duration."""
        recent = None if over else self._recent_speed()
        speed = recent or self._mean_speed(now)
        pieces = [_percent(self.share()), f"{self.responses:,} responses"]
        if self.responses:
            pieces.append(f"{speed.responses:,.0f}/s")
        if self.tokens:
            pieces.append(f"{speed.tokens:,.0f} tokens/s")
        if over:
            pieces.append(f"in {duration(now - self._began)}")
        elif recent is None and self._load is not None and any(self._load):
            # The rows that will be the first parts; of a judge each vote is a request.
            answered, under_way = self._load
            pieces.append(f"engines answered {answered:,} of {answered + under_way:,} requests")
        else:
            pieces.append(self._eta(recent))
        if self.reasons:
            most_frequent = self.reasons.most_common(_SHOWN_REASONS)
            unnamed = self.reasons.total() - sum(count for _, count in most_frequent)
            counted = [f"{count} {reason}" for reason, count in most_frequent]
            pieces.append(", ".join([*counted, *([f"{unnamed} other{'s' * (unnamed > 1)}"] if unnamed else [])]))
        return "  ".join(pieces)

    def figures(self, now: float) -> dict[str, float]:
        """The figures for a log: the share done, counts of this session, and amounts per second, of late where known."""
        speed = self._recent_speed() or self._mean_speed(now)
        return {
            "done_share": self.share(),
            "rows": self.rows,
            "responses": self.responses,
            "tokens": self.tokens,
            "without_reward": self.reasons.total(),
            "rows_per_s": speed.rows,
            "responses_per_s": speed.responses,
            "tokens_per_s": speed.tokens,
        }

    def _mean_speed(self, now: float) -> _Amounts:
        seconds = max(now - self._ready_at, 1e-9)  # no division by zero where the first part is there with the first engine
        amounts = (self._bytes - self._bytes_before, self.rows, self.responses, self.tokens)
        return _Amounts(*(amount / seconds for amount in amounts))

    def _recent_speed(self) -> _Amounts | None:
        """None while there are fewer than `_MIN_SAMPLES` parts, or all came at the same moment."""
        samples = tuple(self._samples)  # in one step, as the other thread may add a part meanwhile
        moments, totals = [moment for moment, _ in samples], [amounts for _, amounts in samples]
        if len(moments) < _MIN_SAMPLES or moments[0] == moments[-1]:
            return None
        return _Amounts(*(statistics.linear_regression(moments, amounts).slope for amounts in zip(*totals, strict=True)))

    def _eta(self, speed: _Amounts | None) -> str:
        remaining = max(0.0, self._total - self._bytes)
        if not remaining:
            return "no ETA: the input is larger than was estimated" if self._is_estimate else f"ETA {duration(0)}"
        if speed is not None and speed.bytes > 0:
            return f"ETA {duration(remaining / speed.bytes)}"
        # Parts that all came at one moment have no slope: it isn't their number that is lacking.
        few = len(self._samples) < _MIN_SAMPLES
        return f"ETA known after {_MIN_SAMPLES} parts" if few else "ETA when parts come one after another"

    def _bytes_of(self, part: Part) -> float:
        pieces = part.pieces(self._extents)
        return float(sum((piece.end - piece.start) * self._weights.get(file, 0.0) for file, piece in pieces))


def watched() -> Progress:
    """The progress for a caller from Python: shown in a notebook and on a terminal; scripts without either stay silent."""
    shown = screen(sys.stderr)
    return TerminalProgress(shown=shown) if isinstance(shown, Terminal | Notebook) else Progress()


class TerminalProgress(Progress):
    """Shows lines of text on a `Screen`: the last one is the progress line, whose states follow each other."""

    def __init__(
        self, stream: TextIO | None = None, shown: Screen | None = None, first_step: str = "starting the engines"
    ) -> None:
        """`stream`: standard error unless given; `first_step` is what a run waits for before its first part."""
        self._screen = shown or screen(stream or sys.stderr)
        self._first_step = first_step
        self._meter: Meter | None = None
        self._shown_at = 0.0
        self._about = ""
        self._planned: str | None = None

    def member(self, name: str, model: str, number: int, count: int) -> None:
        """See `Progress`. Every later line begins with the member's name."""
        self._about = f"{name}: "
        self.noted(f"{model}, model {number} of {count}")

    def combined(self, done: int, count: int) -> None:
        self._about = ""
        now = time.monotonic()
        if now - self._shown_at >= self._screen.every_s or done == count:
            self._show(f"{_percent(done / count if count else 1.0)}  {done:,} responses combined", now)
        if done == count:
            self._screen.end()

    def planned(self, shape_found: str) -> None:
        """See `Progress`. Printed once for an ensemble, whose members all report the same."""
        if shape_found != self._planned:
            self.noted(shape_found)
        self._planned = shape_found

    @contextmanager
    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Iterator[None]:
        """See `Progress`. A normal end of the block means that everything is done, whatever was estimated."""
        size = sum(file.size for file in files)
        ahead = f", {len(done):,} part{'s are' if len(done) > 1 else ' is'} there already" if done else ""
        self._meter = Meter(files, done, time.monotonic())
        self._show(f"{number_of(len(files), 'file')}, {size:,} bytes{ahead}; {self._first_step}")
        try:
            yield
            self._meter.complete()
        finally:
            if self._meter.has_parts:
                self._show(self._meter.line(time.monotonic(), over=True))
            self._screen.end()

    def part_done(self, part: Mapping[str, Any]) -> None:
        assert self._meter is not None
        now = time.monotonic()
        self._meter.add(part, now)
        if now - self._shown_at >= self._screen.every_s:
            self._show(self._meter.line(now), now)

    def loaded(self, answered: int, under_way: int, since_ready: float) -> None:
        now = time.monotonic()
        if self._meter is not None:
            self._meter.load(answered, under_way, now - since_ready)
            if (answered or under_way) and now - self._shown_at >= self._screen.every_s:
                self._show(self._meter.line(now), now)

    def noted(self, text: str) -> None:
        self._screen.keep(line(self._about + text))

    def _show(self, text: str, now: float = 0.0) -> None:
        """Show the next state of the progress line; at `now`, so that the state after it comes no sooner than due."""
        self._screen.show(line(self._about + text))
        self._shown_at = now or self._shown_at


def _percent(share: float) -> str:
    # Rounded down, so that 100% is all; by 1e-9, relative, more than the share, which is a sum of floats.
    return f"{math.floor(share * 100 * (1 + 1e-9)):3d}%"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss, rounded down."""
    total = max(0, int(seconds))
    return f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"
