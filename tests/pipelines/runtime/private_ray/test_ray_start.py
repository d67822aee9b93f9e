"""What a Ray of our own consists of."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

PROCESSES = """
import psutil
from pipelines.runtime.session import ray_session
with ray_session():
    for process in psutil.Process().children(recursive=True):
        print(*process.cmdline())
"""


@pytest.mark.long
def test_a_ray_of_our_own_has_no_process_for_what_nobody_asks() -> None:
    command = [sys.executable, "-c", PROCESSES]
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, timeout=300, check=True)
    assert "raylet/raylet" in done.stdout
    assert not [name for name in ("dashboard/dashboard.py", "monitor.py") if name in done.stdout]
