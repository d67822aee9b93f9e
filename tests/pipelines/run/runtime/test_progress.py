"""The figures of a run under way, and the lines that show them."""

import functools
import gzip
import io
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from actors.workers.crash_ledger import Ledger
from actors.workers.engine_process import alive_nodes
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.run.runtime.lost_engines import EngineWatch, watch_first_worker
from pipelines.run.runtime.progress import Meter, Progress, TerminalProgress, watched
from pipelines.run.runtime.screens import Notebook
from tests.support.engines import until


def lines_file(index: int, size: int) -> InputFile:
    return InputFile(index, f"{index}", f"/{index}", FileKind.JSONL, size, "", size)


def rows_file(index: int, size: int, rows: int) -> InputFile:
    return InputFile(index, f"{index}", f"/{index}", FileKind.PARQUET, size, "", rows)


def done(start: int, end: int, file: int = 0) -> Part:
    return Part(file, Range(start, end), Counts(1, 1))


def event(start: int, end: int, file: int = 0, scored: int = 1, tokens: int = 10, **reasons: int) -> dict[str, object]:
    place = {"file": file, "further": 0, "start": start, "end": end}
    counts = {"rows": 1, "scored": scored, "rejected": sum(reasons.values()), "failed": 0, "tokens": tokens}
    return {**place, **counts, "reasons": json.dumps(reasons)}


def meter(*files: InputFile, parts: Sequence[Part] = ()) -> Meter:
    return Meter(files, parts, now=100.0)


# --- the meter -----------------------------------------------------------------------------------------------------


def test_the_share_is_of_the_bytes_of_all_files() -> None:
    figures = meter(lines_file(0, 100), rows_file(1, 300, rows=6))
    assert figures.share() == 0
    figures.add(event(0, 50), now=100.0)
    assert figures.share() == pytest.approx(50 / 400)
    figures.add(event(0, 3, file=1), now=100.0)
    assert figures.share() == pytest.approx(200 / 400)
    figures.add(event(50, 100), now=100.0)
    figures.add(event(3, 6, file=1), now=100.0)
    assert figures.share() == 1


def test_what_earlier_runs_did_counts_for_the_share_and_not_for_the_speed() -> None:
    figures = meter(lines_file(0, 100), parts=[done(0, 60)])
    assert figures.share() == pytest.approx(0.6)
    assert "ETA known after 8 parts" in figures.line(110.0)
    figures.add(event(60, 80, scored=20, tokens=300), now=100.0)
    assert figures.share() == pytest.approx(0.8)
    assert figures.line(110.0) == " 80%  20 responses  2/s  30 tokens/s  ETA known after 8 parts"


@pytest.mark.parametrize(("seconds", "eta"), [(1.0, "0:00:30"), (61.0, "0:30:30"), (400.0, "3:20:00")])
def test_the_eta_goes_by_the_speed_so_far(seconds: float, eta: str) -> None:
    figures = meter(lines_file(0, 40))
    for index in range(10):
        assert figures.line(100.0 + seconds * index).endswith("ETA known after 8 parts") == (index < 8), (
            "a few parts tell nothing of the rest"
        )
        figures.add(event(index, index + 1), now=100.0 + seconds * index)
    assert figures.line(100.0 + seconds * 9).endswith(f"ETA {eta}")


def test_the_speed_isnt_that_of_the_engines_start_nor_of_a_first_burst() -> None:
    figures = meter(lines_file(0, 1000))
    for index in range(100):  # engines start for an hour; four parts come at once, then one every ten seconds
        figures.add(event(10 * index, 10 * index + 10), now=3700.0 + max(0, index - 3) * 10)
        if index >= 10:
            remaining = (99 - index) * 10
            *_, hours, minutes, seconds = map(int, figures.line(3700.0 + (index - 3) * 10).split("ETA ")[1].split(":"))
            assert hours * 3600 + minutes * 60 + seconds == pytest.approx(remaining, rel=0.2, abs=1)
    assert "  0/s  1 tokens/s" in figures.line(3700.0 + 96 * 10)


@pytest.mark.parametrize("burst", [1, 5, 9])
def test_the_eta_is_right_within_a_fifth_after_a_tenth(burst: int) -> None:
    """Prompts that go in together come out together, so parts come in bursts; and one of them is never on time."""
    parts = 225
    times = sorted(
        100.0 + 4.0 * (position // burst) + (2.0 if position % 7 == 3 else 0.02 * (position % burst))
        for position in range(parts)
    )
    figures = meter(lines_file(0, 10 * parts))
    for index, now in enumerate(times):
        figures.add(event(10 * index, 10 * index + 10), now=now)
        if 0.1 <= figures.share() < 0.9:
            hours, minutes, seconds = map(int, figures.line(now).split("ETA ")[1].split(":"))
            assert hours * 3600 + minutes * 60 + seconds == pytest.approx(times[-1] - now, rel=0.2)


def test_the_speed_follows_the_number_of_engines() -> None:
    figures, now = meter(lines_file(0, 10_000)), 100.0
    for index in range(5000):
        now += 1.0 if index < 4000 else 0.25  # four engines instead of one
        figures.add(event(2 * index, 2 * index + 2), now=now)
    assert figures.line(now) == "100%  5,000 responses  4/s  40 tokens/s  ETA 0:00:00"
    assert figures.figures(now)["rows_per_s"] == pytest.approx(4.0)


def test_parts_may_come_while_the_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load is noted, and shown, by Ray Data's thread, which an error would end, and the run with it."""
    # Else most of the time would go into these, and the two would rarely meet.
    monkeypatch.setattr(statistics, "linear_regression", lambda *_: SimpleNamespace(slope=1.0))
    figures, has_ended, before = meter(lines_file(0, 10**6)), threading.Event(), sys.getswitchinterval()

    def add() -> None:
        for index in range(10_000):
            figures.add(event(index, index + 1), now=100.0 + index)
        has_ended.set()

    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=add)
        thread.start()
        while not has_ended.is_set():
            figures.line(10**6)
    finally:
        sys.setswitchinterval(before)
        thread.join()


ROWS = [{"id": number, "text": "abc" * (number % 7)} for number in range(5000)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def unmeasured(folder: Path, index: int, kind: FileKind) -> InputFile:
    """A file of `ROWS` whose end only reading it tells."""
    data = gzip.compress(LINES) if kind is FileKind.JSONL_GZIP else json.dumps(ROWS).encode()
    path = folder / f"{index}"
    path.write_bytes(data)
    return InputFile(index, path.name, str(path), kind, len(data), "", None)


@pytest.mark.parametrize("kind", [FileKind.JSONL_GZIP, FileKind.ARRAY])
def test_an_end_that_only_reading_tells_is_estimated(tmp_path: Path, kind: FileKind) -> None:
    figures = meter(unmeasured(tmp_path, 0, kind))
    figures.add(event(0, len(LINES) // 2 if kind is FileKind.JSONL_GZIP else 2500), now=100.0)
    assert figures.share() == pytest.approx(0.5, abs=0.05)


def test_a_first_part_under_way_is_seen_and_speeds_are_without_the_engines_start() -> None:
    figures = meter(lines_file(0, 100))
    figures.load(0, 0, ready_at=3700.0)  # an hour later the first engine is ready
    assert figures.line(3700.0) == "  0%  0 responses  ETA known after 8 parts"
    figures.load(132, 368, ready_at=3700.0)
    assert figures.line(3710.0) == "  0%  0 responses  engines answered 132 of 500 requests"
    figures.add(event(0, 100, scored=500, tokens=9000), now=3720.0)
    assert figures.line(3720.0, over=True) == "100%  500 responses  25/s  450 tokens/s  in 1:00:20"


def test_what_isnt_known_is_left_out() -> None:
    figures = meter(lines_file(0, 100))
    figures.add(event(0, 100, scored=10, tokens=0), now=105.0)
    assert figures.line(105.0, over=True) == "100%  10 responses  2/s  in 0:00:05"


def test_a_byte_of_one_kind_of_file_isnt_a_row_of_another(tmp_path: Path) -> None:
    packed, array = unmeasured(tmp_path, 0, FileKind.JSONL_GZIP), unmeasured(tmp_path, 1, FileKind.ARRAY)
    figures = meter(packed, array)
    figures.add(event(0, len(LINES)), now=100.0)
    assert figures.share() == pytest.approx(packed.size / (packed.size + array.size), abs=0.02)


@pytest.mark.parametrize("files", [[], [lines_file(0, 0)], [rows_file(0, 900, rows=0)]], ids=["none", "empty", "no rows"])
def test_nothing_to_do_is_all_done(files: list[InputFile]) -> None:
    figures = meter(*files)
    assert figures.share() == 1
    assert figures.line(100.0) == "100%  0 responses  ETA 0:00:00"


def test_a_file_that_a_limit_leaves_out_isnt_waited_for() -> None:
    cut_off = InputFile(0, "0", "/0", FileKind.JSONL, 1000, "", 10)
    left_out = InputFile(1, "1", "/1", FileKind.JSONL, 1000, "", 0)
    figures = meter(cut_off, left_out)
    figures.add(event(0, 10), now=100.0)
    assert figures.share() == 1


def test_nearly_all_isnt_all_and_what_is_scored_again_is_never_more() -> None:
    figures = meter(lines_file(0, 1000))
    figures.add(event(0, 999), now=100.0)
    assert figures.line(100.0).startswith(" 99%")
    figures.add(event(500, 1000), now=100.0)
    assert figures.share() == 1


def test_the_commonest_reasons_are_shown() -> None:
    figures = meter(lines_file(0, 100))
    figures.add(event(0, 10, too_long=2, not_utf8=1), now=100.0)
    figures.add(event(10, 20, too_long=1, broken_json=5, tool_call=2), now=100.0)
    assert figures.responses == 13
    assert figures.line(101.0).endswith("5 broken_json, 3 too_long, 2 tool_call, 1 other")


# --- displays ------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_whole_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 101.0, 102.0, 112.0, 113.0])  # at the start, at each of three parts, and at the end
    monkeypatch.setattr("pipelines.run.runtime.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    stream = io.StringIO()
    lines = TerminalProgress(stream, first_step="asking the endpoint")
    with lines.running([lines_file(0, 100)], []):
        for start, end in ((0, 25), (25, 50), (50, 100)):
            lines.part_done(event(start, end))
    assert stream.getvalue().splitlines() == [
        "1 file, 100 bytes; asking the endpoint",
        " 25%  1 responses  1/s  10 tokens/s  ETA known after 8 parts",
        "100%  3 responses  0/s  2 tokens/s  ETA 0:00:00",
        "100%  3 responses  0/s  2 tokens/s  in 0:00:13",
    ]
    assert stream.getvalue().endswith("\n")


def test_a_terminal_keeps_one_line_in_its_place() -> None:
    stream = Terminal()
    lines = TerminalProgress(stream)
    with suppress(KeyboardInterrupt), lines.running([lines_file(0, 100), lines_file(1, 1000)], [done(0, 50)]):
        lines.part_done(event(50, 75))
        lines.part_done(event(75, 100))
        raise KeyboardInterrupt
    start, *updates = stream.getvalue().removesuffix("\n").split("\r\x1b[2K")[1:]
    assert start == "2 files, 1,100 bytes, 1 part is there already; starting the engines"
    assert [update[:18] for update in updates] == ["  6%  1 responses ", "  9%  2 responses ", "  9%  2 responses "]
    assert stream.getvalue().count("\n") == 1


def test_what_a_person_should_know_is_told_in_a_line_that_stays() -> None:
    text = "engines died and were started again, 2 so far; the last one: out of memory"
    for stream, shown in ((io.StringIO(), f"{text}\n"), (Terminal(), f"\r\x1b[2K{text}\n")):
        TerminalProgress(stream).noted(text)
        assert stream.getvalue() == shown


class Watched(Progress):
    """What is noted goes to a function, and loads are kept."""

    def __init__(self, notify: Any) -> None:
        self.notify = notify
        self.loads: list[tuple[int, int]] = []

    def noted(self, text: str) -> None:
        """See `pipelines.run.runtime.progress.Progress`."""
        self.notify(text)

    def loaded(self, answered: int, under_way: int, since_ready: float) -> None:
        """See `pipelines.run.runtime.progress.Progress`."""
        self.loads.append((answered, under_way))


def watch(ledger: Any, notify: Any, gpus: int = 0) -> EngineWatch:
    return EngineWatch([ledger], gpus, Watched(notify))


def step(watch: EngineWatch) -> None:
    watch._reported_at = 0.0
    watch._checked_at = time.monotonic()  # Ray knows no actors of these names, of which a slow machine would ask it
    watch.on_execution_step(None)


@pytest.mark.parametrize(("gpus", "place"), [(0, ""), (1, " on 1 GPU"), (4, " on 4 GPUs")])
def test_each_step_of_the_first_engines_start_is_said_once(local_ray: None, gpus: int, place: str) -> None:
    noted: list[str] = []
    ledger: Any = ray.remote(Ledger).options(num_cpus=0).remote(3)
    watching = watch(ledger, noted.append, gpus)
    for holder in ("first", "second"):
        ray.get(ledger.note_start.remote(holder, f"process of {holder}", "a node", alive_nodes()))
        for name in ("importing vLLM", "loading tiny-scalar"):
            ray.get(ledger.note_start_step.remote(holder, name))
            step(watching)
    assert noted == [f"importing vLLM{place}", f"loading tiny-scalar{place}"]
    ray.get(ledger.note_ready.remote("first"))
    step(watching)
    step(watching)
    assert noted[2:] == ["the first engine is ready; waiting for the first part"]


def test_the_load_of_all_engines_is_told_where_it_changes(local_ray: None) -> None:
    ledger: Any = ray.remote(Ledger).options(num_cpus=0).remote(3)
    progress = Watched(print)
    watching, loads = EngineWatch([ledger, ledger], 0, progress), progress.loads
    ray.get(ledger.note_load.remote("first", 1, 1))
    step(watching)
    assert loads == [], "none is ready"
    for holder, load in (("first", (2, 1)), ("first", (2, 1)), ("second", (5, 0))):
        ray.get(ledger.note_start.remote(holder, f"process of {holder}", "a node", alive_nodes()))
        ray.get(ledger.note_ready.remote(holder))
        ray.get(ledger.note_load.remote(holder, *load))
        step(watching)
    assert loads == [(4, 2), (14, 2)], "of each ledger"


class Placed:
    """An actor in the place of an engine's."""

    def holder(self) -> str:
        """Its id."""
        return str(ray.get_runtime_context().get_actor_id())


def test_an_engine_that_was_removed_while_it_started_isnt_waited_for(local_ray: None) -> None:
    """Else it seems to start for ever, and a lost engine's work waits for hours."""
    ledger: Any = ray.remote(Ledger).options(num_cpus=0).remote(3)
    placed: Any = ray.remote(Placed).options(num_cpus=0)
    waiting, removed = placed.remote(), placed.remote()
    for actor, node in ((waiting, "a node that went"), (removed, min(alive_nodes()))):
        holder = ray.get(actor.holder.remote())
        ray.get(ledger.note_start.remote(holder, f"process of {holder}", node, alive_nodes()))
    watching = watch(ledger, print)
    assert watching._count_lost() == 0, "the other one starts"
    ray.kill(removed)
    until(lambda: watching._count_lost() == 1)
    ray.kill(waiting)
    until(lambda: watching._count_lost() == 0)


def test_a_ray_that_starts_no_worker_is_told_of_once_with_where_its_logs_are(local_ray: None) -> None:
    noted: list[str] = []
    nowhere: Any = ray.remote(Ledger).options(num_cpus=0, resources={"nowhere": 1}).remote(3)
    with watch_first_worker([nowhere], noted.append, patience_s=0.0):
        until(lambda: bool(noted))
    ray.kill(nowhere)
    (text,) = noted
    logs = text.partition("under ")[2].partition(" on the head node")[0]
    assert Path(logs, "raylet.out").exists()


def test_a_ray_that_starts_workers_is_watched_in_silence(local_ray: None) -> None:
    noted: list[str] = []
    ledger: Any = ray.remote(Ledger).options(num_cpus=0).remote(3)
    ray.get(ledger.engine_starts.remote())
    with watch_first_worker([ledger], noted.append, patience_s=0.0), watch_first_worker([], noted.append):
        ray.get(ledger.engine_starts.remote())
    assert noted == []


def test_an_engine_of_several_nodes_says_on_which_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"NodeID": name, "NodeName": f"10.0.0.{name}", "Alive": True} for name in "12"]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert watch(None, None, 2)._place("2") == " on 2 GPUs on 10.0.0.2"
    assert watch(None, None)._place("1") == " on 10.0.0.1"


def test_a_run_without_a_place_for_its_engine_says_what_it_takes_and_what_is_free(
    local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    watching = watch(ray.remote(Ledger).options(num_cpus=0).remote(3), noted.append, 2)
    step(watching)
    assert noted == [], "a process takes a moment to start"
    monkeypatch.setattr("pipelines.run.runtime.lost_engines.PLACE_S", 0.0)
    step(watching)
    step(watching)
    (text,) = noted
    assert text.startswith(
        "waiting for Ray to start the first engine, which takes 2 GPUs and half a CPU; free are 0 GPUs and "
    )


def test_restarts_are_said_as_they_happen_and_at_the_end(local_ray: None) -> None:
    noted: list[str] = []
    ledger: Any = ray.remote(Ledger).options(num_cpus=0).remote(9)
    watching = watch(ledger, noted.append)
    (node,) = alive_nodes()
    start = functools.partial(ledger.note_start.remote, "first", node=node, alive=[node])
    processes = iter("abcd")
    for say in (step, lambda watching: watching.after_execution_succeeds(None)):
        ray.get(start(next(processes)))
        ray.get(ledger.note_error.remote("out of memory"))
        ray.get(start(next(processes)))
        say(watching)
    assert [text.split(";")[0] for text in noted] == [
        "engines died and were started again, 1 so far",
        "engines died and were started again, 3 so far",
    ]


@pytest.mark.parametrize("kind", [FileKind.JSONL_GZIP, FileKind.ARRAY])
def test_the_bar_is_at_all_at_the_end_and_not_before(tmp_path: Path, kind: FileKind) -> None:
    """The extent is guessed from the start of the file, where rows are longer or shorter than later."""
    stream = io.StringIO()
    lines = TerminalProgress(stream)
    with lines.running([unmeasured(tmp_path, 0, kind)], []):
        for index in range(8):
            lines._shown_at = -1e9
            lines.part_done(event(index * len(LINES), (index + 1) * len(LINES)))  # more than the whole file, by the guess
    *during, last = stream.getvalue().splitlines()[1:]
    assert [line.split()[0] for line in during] == ["99%"] * 8
    assert during[-1].endswith("  no ETA: the input is larger than was estimated")
    assert last.startswith("100%  8 responses")
    short = Terminal()
    with (lines := TerminalProgress(short)).running([unmeasured(tmp_path, 1, kind)], []):
        lines.part_done(event(0, 10, file=1))
    assert short.getvalue().split("\r\x1b[2K")[-1].startswith("100%  1 responses"), "fewer positions than were guessed"


def test_a_notebook_gets_outputs_of_which_the_last_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, str, bool]] = []

    def display(data: dict[str, str], raw: bool, display_id: str, update: bool) -> None:
        shown.append((data["text/plain"], display_id, update))

    monkeypatch.setattr("importlib.import_module", lambda name: SimpleNamespace(display=display))
    lines = TerminalProgress(shown=Notebook())
    with lines.running([lines_file(0, 100)], []):
        lines.noted("importing vLLM")
        lines.part_done(event(0, 100))
    texts, ids, updates = zip(*shown, strict=True)
    assert [text[:14] for text in texts] == ["1 file, 100 by", "importing vLLM", "100%  1 respon", "100%  1 respon"]
    assert (ids[0] == ids[1], ids[1] != ids[2], ids[2] == ids[3]) == (True, True, True)
    assert updates == (False, True, False, True)


def test_from_python_progress_is_shown_on_a_terminal_and_not_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(watched()) is Progress, "which shows nothing"
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(watched(), TerminalProgress)


def test_standard_error_is_the_one_at_the_time_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    TerminalProgress().noted("reading")  # capsys has replaced the stream since the module was imported
    assert capsys.readouterr().err == "reading\n"
