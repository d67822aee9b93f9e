"""The store around the scorer of an endpoint, on its event loop.

Look-ups run in threads: a hit reads a segment. A thread of its own writes what is new, and looks for the segments of
others, so no request waits for either. What the endpoint has scored is in the store after half a minute, or when it
ends; a killed replica loses that.
"""

import asyncio
import threading
from collections.abc import Sequence

from actors.launch.start_engine import Report
from actors.records import Reason, RenderedRequest
from actors.scorers.head_scorer import ScoreRequests, Scores
from pipelines.data.storage import Folder
from pipelines.data.storage.patience import SHORT_S
from pipelines.folders.score_store.entries import StoredUnit, decode
from pipelines.folders.score_store.stored_scores import StoredUnits, UnitOutcome

_TICK_S = 1.0  # between two looks at what is due


class OnlineStoredScores(StoredUnits):
    """An endpoint's `ScoreRequests`, with the store of one identity around it. For one event loop."""

    def __init__(self, folder: Folder, identity: str, score: ScoreRequests, report: Report, *, compares: bool) -> None:
        """Returns when it knows what is stored, which takes seconds for a million entries."""
        super().__init__(folder, identity, report, compares=compares)
        self._score = score
        self._read_new_segments_if_due()
        self._closed = threading.Event()
        # A daemon: a store that doesn't answer must not hold up the end of a replica.
        self._thread = threading.Thread(target=self._keep_up, name="score store", daemon=True)
        self._thread.start()

    async def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        stored = await asyncio.to_thread(self.look_up, requests)
        missing = stored.missing
        while missing:
            claims, awaited = self.claim(missing)
            if claims:  # before anything is waited for: else two requests might wait for each other
                with self.settled(claims):
                    scored = await self._score([claim.unit.request for claim in claims.values()])
                    stored.ready.update(self.settle(claims, scored))
            # With exceptions as results: one client that left must not end the wait for the others' scores.
            outcomes = await asyncio.gather(*map(asyncio.wrap_future, awaited.values()), return_exceptions=True)
            missing = {}
            for (key, future), outcome in zip(awaited.items(), outcomes, strict=True):
                # The client that it was scored for has left, or gave it less time than another may.
                if isinstance(outcome, asyncio.CancelledError) or _is_late(stored.missing[key], outcome):
                    missing[key] = stored.missing[key]
                else:
                    stored.outcomes[key] = future.result()
            stored.outcomes.update({key: claim.result() for key, claim in claims.items()})
        return stored.scores()

    def close(self) -> None:
        """Write what isn't written yet; waits for a store that doesn't answer for some seconds."""
        self._closed.set()
        self._thread.join(SHORT_S)  # it may be reading many segments
        self._write_if_due(is_idle=True)

    def _keep_up(self) -> None:
        while not self._closed.wait(_TICK_S):
            self._read_new_segments_if_due()
            self._write_if_due(is_idle=False)


def _is_late(unit: StoredUnit, outcome: UnitOutcome | BaseException) -> bool:
    if isinstance(outcome, BaseException) or outcome.lasts:
        return False
    return any(score.reason is Reason.ENGINE_TIMEOUT for score in decode(unit, outcome.value, from_store=False))
