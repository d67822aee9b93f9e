"""Trainers' own code, in a process of its own, gets the endpoint's numbers through the client's adapters."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from assay_client import Client
from tests.conftest import REPOSITORY
from tests.support.endpoints import ANSWERED, application, listening, scorer

pytestmark = pytest.mark.long

TRAINERS = REPOSITORY / ".venv" / "trainers"
"""Where `make test-all` puts what requirements-trainers.txt names."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    model = scorer("tiny-attributes")
    with listening(application([model])) as url:
        yield url
    model.close()


@pytest.mark.parametrize(
    ("trainer", "without"),
    [("verl", "empty_content"), ("skyrl", "empty_content"), ("openrlhf", None)],  # OpenRLHF logs the exception
)
def test_a_trainers_own_code_gets_the_numbers(address: str, trainer: str, without: str | None) -> None:
    if not TRAINERS.is_dir():
        message = f"{TRAINERS} isn't there: `make test-all` installs it"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    with Client(address) as client:
        seven = client.rewards([{"messages": ANSWERED}])[0].require()
    environment = os.environ | {"ASSAY_URL": address, "ASSAY_TEMPLATE": "chatml"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "client", TRAINERS)))
    command = [sys.executable, "tests/support/trainer_calls.py", trainer, "7", "", "7"]
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    outcomes: list[Any] = json.loads(run.stdout.splitlines()[-1])
    flat = [outcome[0] if isinstance(outcome, list) else outcome for outcome in outcomes]
    assert flat == [pytest.approx(seven, abs=1e-5), without, pytest.approx(seven, abs=1e-5)]
