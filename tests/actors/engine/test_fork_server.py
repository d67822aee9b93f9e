"""Processes forked from one that has imported vLLM: what they are handed, and how they end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.engine import fork_server
from actors.engine.process_reaper import VARIABLE, _find_marked
from tests.support.engines import running, until

SLEEPER = """
import signal
from actors.engine import fork_server

fork_server._CORE, fork_server._CPU_WORKER = [], "signal"  # a server that imports nothing
process = fork_server.ForkedProcess(target=signal.pause)
process.start()
print(process.pid, process._server_pid, flush=True)
signal.pause()
"""


def test_a_forked_process_has_the_environment_and_the_output_of_the_process_that_starts_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_TEST_REMOVED", "before")
    fork_server.call(lambda: None)  # there is a server with the environment of now at the latest
    monkeypatch.delenv("ASSAY_TEST_REMOVED")
    monkeypatch.setenv("ASSAY_TEST_ADDED", "after")

    def report() -> dict[str, str]:
        print("written by the forked process", flush=True)
        return dict(os.environ)

    assert fork_server.call(report) == dict(os.environ)
    assert "written by the forked process" in capfd.readouterr().out


def test_a_forked_process_has_imported_vllm_and_uses_as_many_threads_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look() -> tuple[bool, int]:
        imported = "vllm.v1.engine.core" in sys.modules
        import torch

        return imported, torch.get_num_threads()

    for threads in (1, 2):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        assert fork_server.call(look) == (True, threads)


def test_what_a_function_raises_is_raised_by_the_call() -> None:
    def fail() -> None:
        raise ValueError("no such architecture")

    with pytest.raises(ValueError, match=r"^no such architecture$"):
        fork_server.call(fail)
    with pytest.raises(BrokenProcessPool, match="terminated abruptly"):
        fork_server.call(lambda: os._exit(3))


def test_the_server_has_a_single_thread() -> None:
    """Only then is it safe to fork it. With the CUDA build, torch's libraries have one, too, which sleeps."""
    fork_server.call(lambda: None)
    import_of_torch = "import torch, os; print(len(os.listdir('/proc/self/task')))"
    alone = subprocess.run([sys.executable, "-c", import_of_torch], capture_output=True, text=True, check=True).stdout
    assert psutil.Process(fork_server._SERVER.pid).num_threads() == int(alone)


def test_a_server_that_has_initialised_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork torch doesn't say so itself: it says that it is a fork of such a process."""
    import torch

    from actors.engine.vllm_core import adapt_to_environment

    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(RuntimeError, match="ASSAY_FORK_SERVER=0"):
        adapt_to_environment()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of the test's own, which imports nothing, for this process to use once it is started."""
    monkeypatch.setattr(fork_server, "_CORE", [])
    monkeypatch.setattr(fork_server, "_CPU_WORKER", "signal")
    monkeypatch.setattr(fork_server, "_is_cpu_build", lambda: True)
    quick: Any = fork_server._Server()
    monkeypatch.setattr(fork_server, "_SERVER", quick)
    monkeypatch.delenv(fork_server.SWITCH, raising=False)
    yield quick
    quick._stop()


def test_a_server_that_was_killed_is_started_again(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start()
    killed = server.pid
    os.kill(killed, signal.SIGKILL)
    until(lambda: not running(killed))
    monkeypatch.setenv(VARIABLE, "the-mark-of-an-engine-that-starts")
    process = fork_server.ForkedProcess(target=signal.pause)
    process.start()
    try:
        assert psutil.Process(process.pid).ppid() == server.pid != killed
        assert VARIABLE not in psutil.Process(server.pid).environ(), "or the end of that engine would end all others"
    finally:
        process.kill()
        process.join()


def test_a_forked_process_carries_the_mark_by_which_the_tether_ends_it(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a-mark-of-this-test")
    process = fork_server.ForkedProcess(target=signal.pause)
    process.start()
    try:
        until(lambda: Path(f"/proc/{process.pid}") in set(_find_marked(f"{VARIABLE}=a-mark-of-this-test".encode())))
    finally:
        process.kill()
        process.join()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """A process of its own that has started a forked process, and prints its id and the server's."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("killed", ["starter", "server"])
def test_forked_processes_end_with_the_server_and_it_with_the_process_that_started_it(
    sleeper: "subprocess.Popen[str]", killed: str
) -> None:
    assert sleeper.stdout is not None
    forked, server = map(int, sleeper.stdout.readline().split())
    assert running(forked)
    assert running(server)
    os.kill({"starter": sleeper.pid, "server": server}[killed], signal.SIGKILL)
    until(lambda: not running(forked))
    until(lambda: not running(server))


def test_no_server_is_started_or_shared_where_it_is_switched_off() -> None:
    script = "from actors.engine import fork_server as f; f.start(); print(f.share(), f._SERVER._forkserver_pid)"
    environment = os.environ | {fork_server.SWITCH: "0"}
    command = [sys.executable, "-c", script]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "0 None"


USER_OF_A_SHARED_SERVER = """
import os
from actors.engine import fork_server

fork_server._CORE, fork_server._CPU_WORKER = [], "signal"  # a server that imports nothing
print(fork_server.call(os.getppid), flush=True)
input()
print(fork_server.call(os.getppid) == fork_server._SERVER.pid, flush=True)
"""


@pytest.mark.long
def test_a_server_is_shared_with_other_processes_while_it_lives(server: Any) -> None:
    environment = os.environ | {fork_server.SWITCH: fork_server.share()}
    process = subprocess.Popen(
        [sys.executable, "-c", USER_OF_A_SHARED_SERVER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) == server.pid
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not running(server.pid))  # but it is there, until we ask how it ended
    output, _ = process.communicate("the server is gone\n")
    assert output == "True\n"


@pytest.mark.long
def test_a_ctrl_c_in_the_terminal_is_not_for_the_server_or_what_is_forked_from_it(server: Any) -> None:
    """The command that starts them gets it, too, and ends them when they have done their work."""

    def blocked() -> bool:
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert fork_server.call(blocked)
    assert not blocked()
    os.kill(server.pid, signal.SIGINT)
    assert fork_server.call(blocked), "the server is still there"


def test_a_forked_process_ends_with_the_process_that_asked_for_it(server: Any) -> None:
    """A tether may be killed with its process, as all below a Ray are that ends; the server is somebody else's."""
    environment = os.environ | {fork_server.SWITCH: fork_server.share()}
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    forked, _ = map(int, process.stdout.readline().split())
    assert psutil.Process(forked).ppid() == server.pid
    process.kill()
    process.communicate()
    until(lambda: not running(forked))
    assert running(server.pid)


@pytest.mark.long
def test_what_a_shared_server_says_while_it_imports_is_not_for_the_person_at_the_command(
    server: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor for the program that reads what the command prints."""
    monkeypatch.setattr(fork_server, "_CORE", ["this"])  # prints when it is imported
    fork_server.share()
    fork_server.call(lambda: None)
    print("what the command says")
    printed = capfd.readouterr()
    assert "Zen of Python" not in printed.out + printed.err
    assert printed.out.endswith("what the command says\n")


def test_on_gpus_each_actor_has_a_server_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_is_cpu_build", lambda: False)
    assert not fork_server.share()
