"""What measurements share: a Ray like that of a run, and the peak memory of a process and its Ray workers."""

import logging
import os
import re
import threading

import psutil

from pipelines.run.runtime.private_ray import ray_start
from tests.support.processes import family

OBJECT_STORE_BYTES = 300 * 10**6
SAMPLE_EVERY_S = 1.0


def start_ray() -> None:
    """A run's private Ray, with an object store that a corpus doesn't fit into."""
    ray_start.start_ray(
        address="local",
        num_cpus=max(2, os.cpu_count() or 2),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


class Watch:
    """Samples memory every second until it is stopped. Memory is the unique set size (USS), summed over processes."""

    def __init__(self) -> None:
        self.peak_mb = 0
        self.at_peak: dict[str, list[int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """Called at each sample; subclasses sample other things here."""

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            self._measure()
            self.look()

    def _measure(self) -> None:
        megabytes: dict[str, list[int]] = {}
        for process in _processes():
            megabytes.setdefault(_role(process), []).append(round(_unique_bytes(process) / 1e6))
        total = sum(map(sum, megabytes.values()))
        if total > self.peak_mb:
            self.peak_mb, self.at_peak = total, megabytes


def _role(process: psutil.Process) -> str:
    """What a process does, from the title that Ray gives it."""
    title = _title(process).strip()
    return re.findall(r"\w+", title.split(".")[0])[-1] if "ray::" in title else "driver"


def _processes() -> list[psutil.Process]:
    """The driver and its workers; the object store's shared memory isn't unique to any of them."""
    driver = psutil.Process()
    return [driver, *(child for child in family(driver) if "ray::" in _title(child))]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _unique_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0
