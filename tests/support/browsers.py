"""Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Where there is none the test is skipped, and fails in CI."""
    path = shutil.which("chromium")
    if path is None:
        lacking = "no chromium here: `apt-get install chromium`"
        pytest.fail(lacking) if os.environ.get("CI") == "true" else pytest.skip(lacking)
    expect.set_options(timeout=30_000)  # milliseconds; a machine that does something else as well takes its time
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as running, running.chromium.launch(executable_path=path, args=arguments) as browser:
        yield browser
