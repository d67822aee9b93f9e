"""Runs in the places that `log` names: real clients in their offline modes, read back as they read themselves."""

import contextlib
import importlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SettingsError
from pipelines.data.corpus.corpus_files import FileKind, InputFile
from pipelines.run.scoring.score_corpus import score
from pipelines.workflows.run_logging import log_thread, logged_progress, run_logger
from pipelines.workflows.run_logging.log_thread import LOGGERS, LogThread
from pipelines.workflows.run_logging.logged_progress import LoggedProgress, RunLogs, logged, observers_of
from pipelines.workflows.run_logging.run_logger import LoggerKind, RunLogger, RunToLog
from tests.support.corpora import Notes, chat, lines, rows, settings, write

RUN = "0123456789abcdef"
SUMMARY = {"responses": 100, "scored": 98, "reasons/too_long": 2, "reward/median": 1.5}


@pytest.fixture(autouse=True)
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every client keeps to a folder of the test."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setattr(logged_progress, "_EVERY_S", 0.0)
    monkeypatch.setattr(log_thread, "_END_EARLY_S", 60.0)  # longer than a busy machine takes to import a client
    yield
    if "wandb" in sys.modules:  # what it read of the environment holds for the process, else
        sys.modules["wandb"].teardown()


def run_of(folder: Path) -> RunToLog:
    return RunToLog(RUN, str(folder / "scored"), {"model": {"model": "tiny-scalar"}, "inputs": ["c.jsonl"] * 9000})


def work(progress: LoggedProgress, parts: int = 10) -> None:
    """Ten parts of ten rows each."""
    file = InputFile(0, "c", "/c", FileKind.PARQUET, 1000, "sha256-of-ends:0", 100)
    with progress.running([file], []):
        for number in range(parts):
            counts = {"rows": 10, "scored": 9, "rejected": 1, "failed": 0, "tokens": 70, "reasons": '{"too_long": 1}'}
            progress.part_done({"file": 0, "further": 0, "start": 10 * number, "end": 10 * number + 10, **counts})


def log(name: str, folder: Path, parts: int = 10) -> list[str]:
    """Log a run, complete if it has all ten parts; what a person is told."""
    notes = Notes()
    with contextlib.suppress(KeyboardInterrupt), logged([name], run_of(folder), notes) as progress:
        work(progress, parts)
        if parts < 10:
            raise KeyboardInterrupt
        progress.summarised(SUMMARY)
    return notes.all


def test_tensorboard_reads_the_curve_the_summary_and_the_settings(tmp_path: Path) -> None:
    assert log("tensorboard", tmp_path) == [f"log tensorboard: {tmp_path}/scored/tensorboard"]
    reader: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(tmp_path / "scored" / "tensorboard" / RUN), size_guidance={"tensors": 0}).Reload()
    curve = [(point.step, round(tensor(point), 3)) for point in events.Tensors("progress/done_share")]
    assert curve[:10] == [(10 * number, round(number / 10, 3)) for number in range(1, 11)]
    assert all(tensor(point) > 0 for name in ("rows_per_s", "tokens_per_s") for point in events.Tensors(f"progress/{name}"))
    assert [(point.step, tensor(point)) for point in events.Tensors("summary/reasons/too_long")] == [(100, 2)]
    assert [tensor(point) for point in events.Tensors("summary/reward/median")] == [1.5]
    (config,) = events.Tensors("config")
    assert b"model: tiny-scalar" in config.tensor_proto.string_val[0]


def tensor(point: Any) -> float:
    return float(importlib.import_module("tensorboard.util.tensor_util").make_ndarray(point.tensor_proto))


def mlflow_runs() -> Any:
    client: Any = importlib.import_module("mlflow").MlflowClient()
    experiment = client.get_experiment_by_name("assay")
    return client, client.search_runs([experiment.experiment_id])


@pytest.mark.long
def test_mlflow_reads_the_same_and_a_resumed_run_goes_on_in_the_same_one(tmp_path: Path) -> None:
    log("mlflow", tmp_path, parts=3)
    client, (run,) = mlflow_runs()
    assert (run.info.status, run.info.run_name) == ("FAILED", "scored")
    assert "summary/scored" not in run.data.metrics
    log("mlflow", tmp_path)
    _, (run,) = mlflow_runs()
    assert run.info.status == "FINISHED"
    assert run.data.params["model.model"] == "tiny-scalar"
    assert {name: run.data.metrics[f"summary/{name}"] for name in SUMMARY} == SUMMARY
    history = client.get_metric_history(run.info.run_id, "progress/done_share")
    assert max((point.step, point.value) for point in history) == (100, 1.0)


def wandb_records(file: Path) -> bytes:
    """The records of an offline run, joined. In the file their fragments lie in blocks of 32 KiB, which may cut a name."""
    data, start, records = file.read_bytes(), 7, b""
    while start + 7 <= len(data):
        space = 2**15 - start % 2**15
        length = int.from_bytes(data[start + 4 : start + 6], "little")
        if space < 7:
            start += space
            continue
        records += data[start + 7 : start + 7 + length]
        start += 7 + length
    return records


def test_wandb_keeps_the_same_in_its_offline_run(tmp_path: Path) -> None:
    (note,) = log("wandb", tmp_path)
    assert note.startswith(f"log wandb: {tmp_path}/wandb/offline-run-")
    sys.modules["wandb"].teardown()  # as at the end of a process: its service writes what it still holds
    (file,) = tmp_path.glob(f"wandb/offline-run-*/run-{RUN}.wandb")
    content = wandb_records(file)
    for name in ("progress/rows_per_s", "summary/reasons/too_long", "summary/reward/median", "tiny-scalar"):
        assert name.encode() in content, name


def test_a_client_without_a_key_is_said_once_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    (note,) = log("wandb", tmp_path)
    assert note.startswith("log wandb failed: ")
    assert note.endswith("; the run goes on without it")


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_slows_no_part_and_little_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread, "_END_S", 1.0)
    notes = Notes()
    with silent_server() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        with logged(["mlflow"], run_of(tmp_path), notes) as progress:
            start = time.monotonic()
            work(progress)
            assert time.monotonic() - start < 1
            progress.summarised(SUMMARY)
        assert time.monotonic() - start < 20
    assert notes.all == ["log mlflow isn't done 1 s after the run's end, and is left unfinished; the run goes on without it"]


class Broken:
    """A logger that fails at its second figures."""

    place = "nowhere"

    def __init__(self, error: BaseException) -> None:
        self._error, self._count = error, 0

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._count += 1
        if self._count == 2:
            raise self._error

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        raise AssertionError("it has failed")


@pytest.mark.parametrize("error", [OSError("no route\nto host"), SystemExit("no route"), ValueError("no route")])
def test_a_logger_that_fails_is_named_once(tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = LoggerKind("broken", "json", lambda run: Broken(error))
    monkeypatch.setattr(LOGGERS, "_loaded", ({**LOGGERS, "broken": broken}, {}))
    assert log("broken", tmp_path) == ["log broken: nowhere", "log broken failed: no route; the run goes on without it"]


def test_a_logger_that_hangs_gets_no_more_than_the_queue_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, notes = threading.Event(), Notes()

    def hang(run: RunToLog) -> RunLogger:
        released.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(log_thread, "_MOST_WAITING", 3)
    start = time.monotonic()
    thread = LogThread(LoggerKind("hanging", "json", hang), run_of(tmp_path), notes.noted)
    for step in range(5):
        thread.log({"progress/rows": 1.0}, step)
    thread.end({}, 5, is_complete=True)
    assert time.monotonic() - start < 10
    assert notes.all == ["log hanging takes nothing more; the run goes on without it"]
    released.set()


def test_a_logger_that_hangs_keeps_no_process_alive() -> None:
    script = (
        "import time; from pipelines.workflows.run_logging.log_thread import LogThread;"
        "from pipelines.workflows.run_logging.run_logger import LoggerKind, RunToLog;"
        f"LogThread(LoggerKind('hanging', 'json', lambda run: time.sleep(600)), RunToLog({RUN!r}, '/scored', {{}}), print)"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("wandb", "out", 'needs the package wandb, which isn\'t installed: pip install "assay\\[wandb\\]"'),
        ("comet", "out", "--set log=comet: there is no such logger; there are mlflow, tensorboard, wandb"),
        ("tensorboard", "s3://bucket/out", "s3://bucket/out is in a store: leave it out, or give a folder"),
    ],
)
def test_a_logger_that_cant_log_the_run_is_refused_before_it(
    name: str, folder: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "wandb":
        monkeypatch.setattr(run_logger, "find_spec", lambda package: None)
    with pytest.raises(SettingsError, match=message):
        RunLogs([name]).check(folder)


@pytest.mark.long
def test_a_run_is_logged_with_its_recipe_and_summary(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*rows(40), chat("What?", " ")]))
    notes = Notes()
    run_settings = settings(corpus, tmp_path / "scored", log=("mlflow",), part_rows=10)
    summary = score(run_settings, notes, observers=observers_of(run_settings))
    _, (run,) = mlflow_runs()
    figures = {name: run.data.metrics[f"summary/{name}"] for name in summary.figures()}
    assert figures == pytest.approx(summary.figures())
    assert [value for name, value in figures.items() if name.startswith("reasons/")] == [1]
    assert run.data.metrics["progress/done_share"] == 1.0
    identity = json.loads((tmp_path / "scored" / "manifest.json").read_text())["identity"]
    assert run.data.params["identity.weights"] == identity["weights"]
    assert next(note for note in notes.all if note.startswith("log ")).startswith("log mlflow: file://")
