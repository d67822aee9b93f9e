"""What a Ray of our own consists of."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

PROCESSES = """
import psutil
from pipelines.run.runtime.session import ray_session
with ray_session():
    for process in psutil.Process().children(recursive=True):
        print(*process.cmdline())
"""

GROUPS = """
import os, psutil
from pipelines.run.runtime.session import ray_session
with ray_session():
    children = psutil.Process().children()
    inside = [process.name() for process in children if os.getpgid(process.pid) == os.getpgrp()]
    print(sum(process.name() in ("raylet", "gcs_server") for process in children), *inside)
"""


@pytest.mark.long
def test_a_signal_to_the_group_of_a_command_is_not_one_to_its_ray() -> None:
    """Else `timeout` stops both, and the command waits for a Ray that is gone, for a minute, and ends without a word."""
    command = [sys.executable, "-c", GROUPS]
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, timeout=300, check=True)
    count, *inside = done.stdout.split()
    assert int(count) == 2
    assert not {"raylet", "gcs_server"} & set(inside)


@pytest.mark.long
def test_a_ray_of_our_own_has_no_process_for_what_nobody_asks() -> None:
    command = [sys.executable, "-c", PROCESSES]
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, timeout=300, check=True)
    assert "raylet/raylet" in done.stdout
    assert not [name for name in ("dashboard/dashboard.py", "monitor.py") if name in done.stdout]
