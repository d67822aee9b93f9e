"""The examples run from a checkout, as they are."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.support.commands import PATIENCE_S


@pytest.mark.long
def test_compose_runs_and_says_what_it_did() -> None:
    done = subprocess.run(
        [sys.executable, "examples/compose.py", "--engine", "fake"],
        cwd=REPOSITORY,
        env={**os.environ, "RAY_ADDRESS": "local"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "160 conversations, 80 of them with a right answer" in done.stdout
    assert re.search(r"keep: \d+ good and brief answers", done.stdout)
    assert re.search(r"top_k: the best answers to \d+ questions, \d+ of them right", done.stdout)
    assert "top_fraction: the best 16 answers" in done.stdout
    assert re.search(r"pairs: \d+, the first one prefers '", done.stdout)
