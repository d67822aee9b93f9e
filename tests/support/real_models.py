"""Published models for tests, out of the packages that requirements-dev.txt and requirements-models.txt pin."""

import os
from pathlib import Path

import pytest

from tiny_models.real import checkpoint


def real_model(name: str) -> Path:
    """The folder of a model of `tiny_models.real`. Without its packages a test is skipped, or fails in CI."""
    try:
        return checkpoint(name)
    except ModuleNotFoundError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
