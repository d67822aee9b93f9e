"""What all tests share: a quiet, private Ray, quick starts of vLLM, and the sample data where it is there."""

import logging
import os
import signal
import sys
import time
from _collections_abc import dict_values
from pathlib import Path

import pytest
from hypothesis import settings

import tests.support.examples  # noqa: F401  registers hypothesis' profiles

# Before Ray and vLLM are imported: they read these once.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_enable_metrics_collection", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # else what runs beside the tests, and they themselves, starve it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Every engine would bind itself to the first core, whoever sits there already.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

# Found by vLLM's processes: what we spawn takes our path, what Ray and the commands start takes the variable.
PLUGINS = str(Path(__file__).resolve().parent / "vllm_plugins")
sys.path.append(PLUGINS)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), PLUGINS]))

# A shell that runs the tests in its background has them ignore Ctrl-C, and with them all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Loggers(dict[str, logging.Logger | logging.PlaceHolder]):
    """pytest goes through all loggers around each test, while a thread of ours may import modules that make more."""

    def values(self) -> "dict_values[str, logging.Logger | logging.PlaceHolder]":
        return self.copy().values()


logging.Logger.manager.loggerDict = _Loggers(logging.Logger.manager.loggerDict)

pytest.register_assert_rewrite("tests.support.contract")
pytest_plugins = [
    "tests.support.engines",
    "tests.support.local_ray",
    "tests.support.object_store",
    "tests.support.scheduler",
]

settings.load_profile("dev")  # unless --hypothesis-profile names another

REPOSITORY = Path(__file__).resolve().parent.parent

LONG_MINUTES = float(os.environ.get("ASSAY_TESTS_LONG_MINUTES", "inf"))
"""A long test that would begin later is left out, and named at the end. CI sets it: its machines may be three times slower
than on another day, and a run that is cut off says nothing."""
BEGAN = time.monotonic()


@pytest.hookimpl(tryfirst=True)  # before fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = (time.monotonic() - BEGAN) / 60
    if minutes > LONG_MINUTES and item.get_closest_marker("long"):
        pytest.skip(f"no time is left for long tests after {LONG_MINUTES:g} minutes; `make test-all` runs it")


class FailuresAtOnce:
    """Prints each failure when it happens: a run that is cut off, by a time limit or by a hand, has said what failed."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"FAILED in {report.when}, after {report.duration:.0f} s: {report.nodeid}", red=True)
            self._reporter.write_line(report.longreprtext)


@pytest.hookimpl(trylast=True)  # the reporter is there by then
def pytest_configure(config: pytest.Config) -> None:
    # The processes that run tests have none: the one that started them reports.
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.register(FailuresAtOnce(reporter))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public sample data that isn't part of the repository."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        message = f"{folder} isn't there: it holds public benchmark data that the repository doesn't ship"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder
