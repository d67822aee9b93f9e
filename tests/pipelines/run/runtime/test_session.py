"""A session's end, whatever is under way in it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.run.runtime import session
from tests.conftest import REPOSITORY


def test_rays_own_folder_goes_also_when_its_end_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "set")
    folder = tmp_path / "session"
    folder.mkdir()
    context = SimpleNamespace(address_info={"session_dir": str(folder)})
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(session, "start_ray", lambda **_: context)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_end_executions", interrupted)
    with pytest.raises(KeyboardInterrupt), session.ray_session():
        assert folder.exists()
    assert not folder.exists()


STOPPED_EARLY = """
import os, sys, threading, time
import ray
from ray.data._internal.execution.execution_callback import ExecutionCallback
from actors.errors import RunStopped
from pipelines.run.runtime.session import ray_session

class SlowStep(ExecutionCallback):
    def on_execution_step(self, executor):
        if "ENOUGH" in os.environ:  # no event: the context travels to workers
            os.environ["BUSY"] = "now"
            time.sleep(6)  # on a busy machine, a step takes longer than Ray Data waits for it
            ray.cluster_resources()

try:
    with ray_session():
        print(ray._private.worker._global_node.get_session_dir_path(), flush=True)
        numbers = ray.data.range(100_000, override_num_blocks=500).map(lambda row: row)
        numbers.context.custom_execution_callback_classes = [SlowStep]
        for _ in numbers.iter_rows():
            os.environ["ENOUGH"] = "now"
            while "BUSY" not in os.environ:
                time.sleep(0.01)
            raise RunStopped("enough")
except RunStopped:
    names = [thread.name for thread in threading.enumerate()]
    left = [name for name in names if name.startswith(("StreamingExecutor", "iter_threaded"))]
    sys.exit(f"{left} would end this process" if left else 3)
"""


@pytest.mark.long
def test_what_ray_data_has_under_way_ends_before_ray_does() -> None:
    """Else Ray ends the process with 1, now and then, when a thread comes too late."""
    command = [sys.executable, "-c", STOPPED_EARLY]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3, done.stderr
    assert not Path(done.stdout.strip()).exists(), "Ray's own folder"
