"""A store around a scorer, here and in an object store: who is asked for what, and what comes of damage."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from actors.records import RenderedRequest, Status
from actors.scorers.head_scorer import Scores
from pipelines.data.storage import Folder
from pipelines.folders.score_store import stored_scores
from pipelines.folders.score_store.segments import read_content, segment_names, write_segment
from pipelines.folders.score_store.stored_scores import StoredScores
from tests.pipelines.data.storage.conftest import folder as a_folder
from tests.support.engines import until
from tests.support.stores import CountingScorer, pair, request

folder = a_folder

IDENTITY = "0" * 32
ROWS = [request([number, number + 1], [number + 2, 7]) for number in range(0, 300, 3)]


class Store(StoredScores):
    """With a scorer that counts, and a list of what was reported."""

    def __init__(self, folder: Folder, scorer: Any = None, identity: str = IDENTITY, compares: bool = False) -> None:
        self.scorer = scorer or CountingScorer()
        self.reports: list[str] = []
        super().__init__(folder, identity, self.scorer, self.reports.append, compares=compares)


@pytest.fixture(autouse=True)
def _made(folder: Folder) -> None:
    folder.make()


def flags(scores: Sequence[Scores]) -> list[bool]:
    return [score.from_store for of_request in scores for score in of_request]


def test_a_later_run_asks_for_nothing_and_gets_the_same_bits(folder: Folder) -> None:
    first = Store(folder)
    scored = first(ROWS)
    assert scored == CountingScorer()(ROWS)
    assert flags(scored) == [False] * 200
    second = Store(folder)
    again = second(list(reversed(ROWS)))
    assert list(reversed(again)) == scored
    assert repr([score.reward for scores in reversed(again) for score in scores]) == repr(
        [score.reward for scores in scored for score in scores]
    )
    assert flags(again) == [True] * 200
    assert second.scorer.prompts == []
    assert (first.reports, second.reports) == ([], [])


def test_another_corpus_pays_for_what_is_new_alone(folder: Folder) -> None:
    Store(folder)(ROWS)
    other = Store(folder)
    mixed = [request([0, 1], [900]), request([901])]  # a known and a new response in one row, and a new row
    assert flags(other(mixed)) == [True, False, False]
    assert other.scorer.prompts == [(900,), (901,)]
    assert other(mixed) == CountingScorer()(mixed)


def test_duplicates_in_a_block_are_asked_for_once(folder: Folder) -> None:
    store = Store(folder)
    twins = [request([1], [1], names=("A", "B")), request([1]), request([2])]
    scores = store(twins)
    assert store.scorer.prompts == [(1,), (2,)]
    assert flags(scores) == [False, True, True, False]
    assert [answer.shown for answer in scores[0][1].trace] == [("B",)]


def test_a_failure_is_never_kept_and_is_nobodys_hit(folder: Folder) -> None:
    failing = Store(folder, CountingScorer(fails=5))
    rows = [request([5], [6]), request([5])]
    assert flags(failing(rows)) == [False] * 3
    assert [score.status for scores in failing(rows) for score in scores] == [Status.FAILED, Status.SCORED, Status.FAILED]
    assert failing.scorer.prompts == [(5,), (6,), (5,)], "tried again, once a block"
    healthy = Store(folder)
    assert flags(healthy(rows)) == [False, True, True]
    assert healthy.scorer.prompts == [(5,)]


def test_a_pair_of_which_one_failed_isnt_kept(folder: Folder) -> None:
    class HalfFailing(CountingScorer):
        def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
            return [
                (scores[0], CountingScorer(fails=1)([request([1])])[0][0])
                for scores in CountingScorer.__call__(self, requests)
            ]

    Store(folder, HalfFailing())([pair([1], [2])])
    assert segment_names(folder) == []


def test_outputs_that_compare_responses_are_found_for_the_whole_row_alone(folder: Folder) -> None:
    Store(folder, compares=True)([request([1], [2])])
    assert flags(Store(folder, compares=True)([request([1], [2])])) == [True, True]
    assert flags(Store(folder, compares=True)([request([1], [3])])) == [False, False]


def test_another_identity_never_hits_even_in_the_same_folder(folder: Folder) -> None:
    Store(folder)(ROWS)
    other = Store(folder, identity="1" * 32)
    assert not any(flags(other(ROWS)))
    (report,) = other.reports
    assert f"holds the scores of another identity, {IDENTITY}" in report


def test_a_segment_that_was_tampered_with_is_refused_named_and_scored_again(folder: Folder) -> None:
    Store(folder)(ROWS)
    (name,) = segment_names(folder)
    content = bytearray(folder.read(name))
    content[len(content) // 2] ^= 1
    folder.replace(name, bytes(content))
    store = Store(folder)
    assert store(ROWS) == CountingScorer()(ROWS)
    assert len(store.scorer.prompts) == 200
    (report,) = store.reports
    assert report.startswith(f"{folder.file(name)} isn't what was written")
    assert report.endswith("the file is whole again; if a later run names it again, delete it")


def test_damaged_segments_that_are_scored_again_are_whole_again(folder: Folder) -> None:
    halves = ROWS[:50], ROWS[50:]
    for half in halves:
        Store(folder)(half)
    names = segment_names(folder)
    contents = {name: folder.read(name) for name in names}
    for name in names:
        folder.replace(name, contents[name][:-1] + b"?")
    store = Store(folder)
    for half in halves:  # the same scores under the same keys: segments of the same names
        assert not any(flags(store(half)))
    assert all("isn't what was written" in report for report in store.reports)
    assert len(store.reports) == 2
    assert {name: folder.read(name) for name in segment_names(folder)} == contents
    assert all(flags(store(ROWS)))
    last = Store(folder)
    assert all(flags(last(ROWS)))
    assert last.reports == []


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_a_segment_that_is_cut_off_is_refused(folder: Folder, content: bytes) -> None:
    Store(folder)(ROWS)
    (name,) = segment_names(folder)
    folder.replace(name, content)
    store = Store(folder)
    assert not any(flags(store(ROWS)))
    assert len(store.reports) == 1


def test_two_writers_at_once_lose_nothing(folder: Folder) -> None:
    stores = [Store(folder) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda store: store(ROWS), stores))
    assert all(result == results[0] for result in results)
    last = Store(folder)
    assert flags(last(ROWS)) == [True] * 200
    assert last.reports == []


def test_threads_of_one_process_ask_once_for_what_they_share(folder: Folder) -> None:
    class Waiting(CountingScorer):
        """Lets a block through when `go` is set."""

        go = threading.Event()

        def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
            scores = super().__call__(requests)
            assert self.go.wait(120)
            return scores

    scorer = Waiting()
    store = Store(folder, scorer)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(store, [request([1]), request([2])])
        until(lambda: len(scorer.prompts) == 2)
        second = threads.submit(store, [request([3]), request([2])])
        until(lambda: len(scorer.prompts) == 3)
        scorer.go.set()
        assert (flags(first.result(120)), flags(second.result(120))) == ([False, False], [False, True])
    assert sorted(scorer.prompts) == [(1,), (2,), (3,)]
    assert len(segment_names(folder)) == 1, "written when no block is in work"


def test_what_is_being_written_isnt_asked_for_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(folder)
    write = write_segment
    missing: list[int] = []

    def look_while_writing(*arguments: Any) -> Any:
        missing.append(len(store.look_up(ROWS).missing))
        return write(*arguments)

    monkeypatch.setattr(stored_scores, "write_segment", look_while_writing)
    store(ROWS)
    assert (missing, store._being_written) == ([0], {})


def test_an_error_of_the_scorer_reaches_whoever_waits_and_is_forgotten(folder: Folder) -> None:
    class Broken(CountingScorer):
        def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
            super().__call__(requests)
            raise ValueError("broken")

    store = Store(folder, Broken())
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            store([request([1])])
    assert store.scorer.prompts == [(1,), (1,)]


def test_others_segments_are_taken_in_later(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_scores, "_LOOK_S", 0.0)
    monkeypatch.setattr(stored_scores, "_LOOK_SHARE", 0)
    store = Store(folder)
    store([request([1])])
    Store(folder)([request([2])])
    assert flags(store([request([2])])) == [True]


def test_a_block_is_written_in_a_few_segments_and_read_with_one_request_each(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = read_content

    def counting(some: Folder, name: str) -> bytes:
        reads.append(name)
        return read(some, name)

    monkeypatch.setattr(stored_scores, "read_content", counting)
    Store(folder)(ROWS[:50])
    Store(folder)(ROWS[50:])
    reads.clear()
    store = Store(folder)
    for row in ROWS:
        store([row])
    assert sorted(reads) == sorted(segment_names(folder))


def test_a_store_that_cant_be_written_or_listed_costs_work_and_no_run(folder: Folder) -> None:
    class Broken:
        path = "there"

        def entries(self) -> list[Any]:
            raise PermissionError(13, "Permission denied", "there")

        def create(self, name: str, content: bytes) -> bool:
            raise OSError(28, "No space left on device", "there")

    store = Store(Broken())  # type: ignore[arg-type]
    assert store(ROWS) == CountingScorer()(ROWS)
    assert store.reports == [
        "the store there can't be listed, so that more is scored: Permission denied (there)",
        "there: scores can't be kept there: No space left on device (there)",
    ]


def test_an_index_that_fails_costs_work_and_no_run(folder: Folder) -> None:
    Store(folder)(ROWS)
    store = Store(folder)
    store._index._database.close()
    assert store(ROWS) == CountingScorer()(ROWS)
    assert not any(flags(store(ROWS)))
    assert store.reports
    assert all("TMPDIR" in report for report in store.reports)
