"""What a person sees while a run works: done and left, responses and tokens per second, failures by reason."""

import bisect
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TextIO

from pipelines.parts import Part
from pipelines.readers import bytes_per_position
from pipelines.sources import InputFile

_LINE_EVERY_S = 10.0
_FILES_MEASURED = 10
_FEWEST_SAMPLES, _MOST_SAMPLES = 8, 1000


class Progress(Protocol):
    """Told of the run's steps as they happen."""

    def planned(self, shape_found: str) -> None:
        """The input was looked at; which shape its rows have, and why."""

    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Any:
        """A context for the time of the run; `done` are the parts of earlier ones."""

    def part_done(self, part: Mapping[str, Any]) -> None:
        """A part was committed: its file, range, counts, tokens, and reasons as JSON."""

    def engines_restarted(self, times: int, cause: str) -> None:
        """Engines died and were started again, so many times in all; and what the last one died of."""


class Silent:
    """Shows nothing."""

    def planned(self, shape_found: str) -> None:
        """See `Progress`."""

    @contextmanager
    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Iterator[None]:
        """See `Progress`."""
        yield

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`."""

    def engines_restarted(self, times: int, cause: str) -> None:
        """See `Progress`."""


class _Sample(NamedTuple):
    """How far the work was at a moment."""

    at: float
    bytes: float
    responses: int
    tokens: int


class Meter:
    """The figures behind every display. Work is measured in positions of the input, scaled to bytes of its files.

    Its speed is that of the later half of the time in which parts have come in: engines take minutes to start, and their
    first parts come all at once.
    """

    def __init__(self, files: Sequence[InputFile], done: Sequence[Part], now: float) -> None:
        self._weights = {file.index: file.size / file.extent for file in files if file.extent}
        for kind in {file.kind for file in files if file.extent is None}:
            unknown = [file for file in files if file.extent is None and file.kind is kind]
            guess = statistics.fmean(map(bytes_per_position, unknown[:_FILES_MEASURED]))
            self._weights |= {file.index: guess for file in unknown}
        self._total = sum(file.size for file in files if file.extent != 0)
        self._first = self._share_of((part.file, part.range.start, part.range.end) for part in done)
        self._bytes = self._first
        self.responses = 0
        self.tokens = 0
        self.reasons: Counter[str] = Counter()
        self._start = _Sample(now, self._bytes, 0, 0)
        self._samples: list[_Sample] = []

    def add(self, part: Mapping[str, Any], now: float) -> None:
        """Count a part in that was committed now."""
        self._bytes += self._share_of([(part["file"], part["start"], part["end"])])
        self.responses += part["scored"] + part["rejected"] + part["failed"]
        self.tokens += part["tokens"]
        self.reasons.update(json.loads(part["reasons"]))
        self._samples.append(_Sample(now, self._bytes, self.responses, self.tokens))
        if len(self._samples) > _MOST_SAMPLES:
            del self._samples[1::2]

    def share(self) -> float:
        """How much of the input is done, 0 to 1. Where only reading a file tells its end, it is an estimate."""
        return min(1.0, self._bytes / self._total) if self._total else 1.0

    def line(self, now: float, over: bool = False) -> str:
        """All of it in a line; when it is over, the speed is that of the whole time."""
        since = self._start if over else self._since(now)
        seconds = max(now - since.at, 1e-9)
        pieces = [
            f"{self.share():4.0%}",
            f"{self.responses:,} responses",
            f"{(self.responses - since.responses) / seconds:,.0f}/s",
            f"{(self.tokens - since.tokens) / seconds:,.0f} tokens/s",
            f"in {duration(seconds)}" if over else f"ETA {self._eta(now, since)}",
        ]
        if self.reasons:
            pieces.append(", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common(3)))
        return "  ".join(pieces)

    def _since(self, now: float) -> _Sample:
        """Where the later half begins; the start, as long as there are few parts to halve."""
        samples = self._samples
        if len(samples) < _FEWEST_SAMPLES:
            return self._start
        middle = bisect.bisect_right(samples, (samples[0].at + now) / 2, key=lambda sample: sample.at)
        return samples[min(middle, len(samples) - 1) - 1]

    def _eta(self, now: float, since: _Sample) -> str:
        done = self._bytes - since.bytes
        if since is self._start or done <= 0:
            return "?"
        return duration((now - since.at) * (self._total - self._bytes) / done)

    def _share_of(self, ranges: Any) -> float:
        return float(sum((end - start) * self._weights.get(file, 0.0) for file, start, end in ranges))


class Lines:
    """A line of text now and then: for logs, and for terminals too, where it stays in its place."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._meter: Meter | None = None
        self._shown = 0.0

    def planned(self, shape_found: str) -> None:
        """See `Progress`."""
        self._stream.write(f"{shape_found}\n")

    @contextmanager
    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Iterator[None]:
        """See `Progress`."""
        size = sum(file.size for file in files)
        ahead = f", {len(done)} part{'s are' if len(done) > 1 else ' is'} there already" if done else ""
        self._say(f"{len(files)} file{'s' * (len(files) != 1)}, {size:,} bytes{ahead}; starting the engines")
        self._meter = Meter(files, done, time.monotonic())
        try:
            yield
        finally:
            if self._meter.responses:
                self._say(self._meter.line(time.monotonic(), over=True))
            if self._stream.isatty():
                self._stream.write("\n")

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`."""
        assert self._meter is not None
        now = time.monotonic()
        self._meter.add(part, now)
        if self._stream.isatty() or now - self._shown >= _LINE_EVERY_S:
            self._say(self._meter.line(now))
            self._shown = now

    def engines_restarted(self, times: int, cause: str) -> None:
        """See `Progress`."""
        self._say(f"engines died and were started again, {times} so far; the last one: {cause}")
        if self._stream.isatty():
            self._stream.write("\n")

    def _say(self, line: str) -> None:
        self._stream.write(f"\r\x1b[2K{line}" if self._stream.isatty() else f"{line}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    left = max(0, int(seconds))
    return f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
