"""What the tests change in vLLM's own processes. vLLM finds it by the entry points beside it, in a folder on PYTHONPATH.

A module of its own name, at the top: vLLM's processes import it, and they know nothing of the tests.
"""

import multiprocessing
import os
import time
from typing import Any

SLOW_WHILE = "ASSAY_TESTS_SLOW_WHILE"
"""A variable with the path of a file: while it exists, engines take `_REQUEST_S` for each request."""
_REQUEST_S = 0.4


def fork_workers() -> None:
    """Let an engine core fork its workers, which is vLLM's default: they needn't import vLLM again, which takes 10 to 20 s.

    The product has them spawned like the engine core itself, since its own process has threads when it starts the core.
    """
    if multiprocessing.current_process().name.startswith("EngineCore"):
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"


def logical_gpus() -> str | None:
    """A CPU that Ray's executor takes for GPUs, where a test asks for that: the shape of a cluster without one."""
    return "assay_tests_platform.LogicalGpus" if os.environ.get("ASSAY_TESTS_LOGICAL_GPUS") else None


def slow_engine() -> None:
    """Let engines wait while a test's file exists, so that a run can't end before the test has seen what it looks for.

    They sleep, and leave the processor to whatever the test waits for. A corpus that is long enough without this would take
    minutes more.
    """
    if (path := os.environ.get(SLOW_WHILE)) and multiprocessing.current_process().name.startswith("EngineCore"):
        from vllm.v1.core.sched.scheduler import Scheduler

        schedule = Scheduler.schedule

        def schedule_slowly(self: Any, *arguments: Any, **options: Any) -> Any:
            output = schedule(self, *arguments, **options)
            if os.path.exists(path):
                time.sleep(_REQUEST_S * len(output.num_scheduled_tokens))
            return output

        Scheduler.schedule = schedule_slowly
