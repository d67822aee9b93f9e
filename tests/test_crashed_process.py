"""A process of the tests that crashes fails the test that it was in, and the run goes on to its end without it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.long  # starts three processes
@pytest.mark.parametrize(
    ("files", "crashed"),
    [
        pytest.param(12, 5, id="with-files-left"),
        # All files are with a process when one crashes: the new process is given the last test of a file first.
        pytest.param(4, 0, id="with-one-test-of-a-file-left"),
    ],
)
def test_a_crash_fails_its_test_and_the_others_run(tmp_path: Path, files: int, crashed: int) -> None:
    tests = "import os\ndef test_a(): pass\ndef test_b(): {}\ndef test_c(): pass\n"
    for file in range(files):
        (tmp_path / f"test_{file:02d}.py").write_text(tests.format("os._exit(3)" if file == crashed else "pass"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "-p",
        "no:cacheprovider",
    ]
    # Not our settings: the warnings of what runs here aren't the matter.
    command += ["-p", "tests.support.scheduler", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert f"1 failed, {3 * files - 1} passed" in run.stdout
    assert f"crashed while running 'test_{crashed:02d}.py::test_b'" in run.stdout
