"""A logger in a process of its own: what it does, prints or waits for is no matter of the run.

The run writes a line of JSON for each event, and never waits for an answer. This process reads lines as they come, so that
the pipe is never full, and hands them to the logger in their order. If the run dies, its log ends as one that failed.
"""

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from actors.modules import modules_in
from pipelines.run_logging import run_loggers
from pipelines.run_logging.run_logger import LoggerKind, RunToLog

LOGGERS: dict[str, LoggerKind] = {
    module.LOGGER.name: module.LOGGER for module in modules_in(run_loggers.__name__, run_loggers.__path__)
}
"""All loggers by name."""

_END_S, _END_EARLY_S = 30.0, 5.0
"""How long the end of a run waits for its log, where it is complete and where it was interrupted or failed."""
_ORPHAN_S = 60
_MAX_ERROR = 300
"""Characters of a client's error that are shown."""
_SIZE = 65536


class LogProcess:
    """The run's side of one logger. No method raises or waits, but `end`, for at most 30 s."""

    def __init__(self, kind: LoggerKind, run: RunToLog, notify: Callable[[str], None]) -> None:
        self._name, self._notify = kind.name, notify
        self._unread, self._has_ended = b"", False
        # In a file, for the config may be larger than a pipe holds.
        with tempfile.TemporaryFile() as document:
            document.write(json.dumps(asdict(run)).encode())
            document.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.run_logging.log_process", kind.name, str(document.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[document.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the run, which then ends its logs
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._to, self._from):
            os.set_blocking(pipe, False)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Pass figures on."""
        self._send({"figures": figures, "step": step})
        self._receive()

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        """Pass the summary on, wait a little until all is sent, and end the process."""
        self._send({"end": is_complete, "figures": summary, "step": step})
        patience = _END_S if is_complete else _END_EARLY_S
        deadline = time.monotonic() + patience
        while not self._has_ended and (left_s := deadline - time.monotonic()) > 0:
            select.select([self._from], [], [], left_s)
            self._receive()
        if not self._has_ended:
            self._fail(f"isn't done {patience:g} s after the run's end, and is left unfinished")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _send(self, event: Mapping[str, Any]) -> None:
        if self._has_ended:
            return
        line = json.dumps(event).encode() + b"\n"
        try:
            # The pipe (64 KiB by default) is full: so far is the logger behind. A run waits for no log, and after a part of
            # a line the next event couldn't be read: so this one is the last.
            if os.write(self._to, line) < len(line):
                self._fail("takes nothing more")
        except BlockingIOError:
            self._fail("takes nothing more")
        except BrokenPipeError:
            self._receive()  # it says why

    def _receive(self) -> None:
        """Read what the process has written, without waiting, and pass it on as notes."""
        while not self._has_ended:
            try:
                read = os.read(self._from, _SIZE)
            except BlockingIOError:
                return
            if not read:
                self._fail("ended by itself")
                return
            *lines, self._unread = (self._unread + read).split(b"\n")
            for line in lines:
                self._handle(json.loads(line))

    def _handle(self, message: Mapping[str, Any]) -> None:
        if "place" in message:
            self._notify(f"--log {self._name}: {message['place']}")
        elif "error" in message:
            self._fail(f"failed: {message['error']}")
        else:
            self._has_ended = True

    def _fail(self, what: str) -> None:
        """Say once that the log isn't whole; nothing more is sent."""
        if not self._has_ended:
            self._notify(f"--log {self._name} {what}; the run goes on without it")
        self._has_ended = True


def main(arguments: list[str]) -> int:
    """The logger's side: log what comes on standard input until the run ends. Returns the exit code."""
    name, document = arguments
    answers = os.dup(1)

    def answer(message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the run has died, and its log goes on to its end
            os.write(answers, json.dumps(message).encode() + b"\n")

    with open(os.devnull, "w") as devnull:
        os.dup2(devnull.fileno(), 1)  # clients print
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(events,), daemon=True).start()
    with os.fdopen(int(document)) as file:
        run = RunToLog(**json.load(file))
    try:
        _log(LOGGERS[name], run, events, answer)
    except Exception as error:  # noqa: BLE001  whatever a client raises
        answer({"error": _error_text(error)})
        return 1
    return 0


def _read(events: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        events.put(json.loads(line))
    # The run has died, or has said its end before: a client that hangs must not stay for ever.
    signal.alarm(_ORPHAN_S)
    events.put({"end": False, "figures": {}, "step": 0})


def _log(
    kind: LoggerKind, run: RunToLog, events: "queue.SimpleQueue[dict[str, Any]]", answer: Callable[[Mapping[str, Any]], None]
) -> None:
    logger = kind.start(run)
    answer({"place": logger.place})
    step = 0
    while "end" not in (event := events.get()):
        step = max(step, event["step"])
        logger.log(event["figures"], step)
    logger.end(event["figures"], max(step, event["step"]), is_complete=event["end"])
    answer({"ended": True})


def _error_text(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_MAX_ERROR]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a client's own shutdown may wait for a network for ever
