"""Metrics of a batch run, counted in the processes that score and commit its parts.

Tags are the model, a status and a reason: nothing that grows with the corpus, and no text of a user.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from actors.records import Score
from pipelines.folders.run_folder.part import Part
from pipelines.run.runtime.ray_meters import counter, gauge, histogram

# Edges of a histogram: from a part of a small head to one of a judge with votes, which takes hours.
_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class RunMetrics:
    """The metrics of one process that scores. May be used from several threads."""

    def __init__(self, model: str) -> None:
        self._model = {"model": model}
        self._lock = threading.Lock()
        self._under_way = 0
        self._busy_since = 0.0

    @contextmanager
    def scoring_part(self) -> Iterator[None]:
        """Time the scoring of a part in the block, whether it succeeds or not.

        Parts are scored several at a time: `assay_run_busy_seconds_total` counts each second once, so its rate is the share
        of time in which the process had work, 0 to 1.
        """
        start = time.monotonic()
        self._change(1, start)
        try:
            yield
        finally:
            end = time.monotonic()
            self._change(-1, end)
            # Ray's histograms take positive values alone, and a coarse clock gives 0 for a part of rejected rows.
            histogram("assay_run_part_seconds", "how long the scoring of a part took", _SECONDS, ("model",)).observe(
                max(end - start, 1e-9), self._model
            )

    def committed(self, part: Part, scores: Sequence[Score]) -> None:
        """Count a part that this process committed, with its rows, responses by outcome, and tokens."""
        self._count("assay_run_rows_total", "input rows in committed parts", part.counts.rows)
        outcomes = Counter((score.status.value, score.reason.value if score.reason else "") for score in scores)
        for (status, reason), count in outcomes.items():
            self._count("assay_run_responses_total", "responses by outcome", count, status=status, reason=reason)
        read, written = (
            sum(getattr(score, name) or 0 for score in scores) for name in ("prompt_tokens", "completion_tokens")
        )
        self._count("assay_run_tokens_total", "tokens read and written", read, kind="prompt")
        self._count("assay_run_tokens_total", "tokens read and written", written, kind="completion")
        self._count("assay_run_parts_total", "parts committed", 1)

    def _count(self, name: str, text: str, amount: float, **tags: str) -> None:
        if amount > 0:  # Ray's counters refuse 0
            counter(name, text, ("model", *tags)).inc(amount, {**self._model, **tags})

    def _change(self, by: int, now: float) -> None:
        with self._lock:
            # The seconds since the last change, once, however many parts were under way in them.
            if self._under_way:
                self._count("assay_run_busy_seconds_total", "seconds with a part under way", now - self._busy_since)
            self._under_way += by
            self._busy_since = now
            gauge("assay_run_parts_under_way", "parts that a process is scoring", ("model",)).set(
                self._under_way, self._model
            )
