"""What the tests change in vLLM's own processes. vLLM finds it by the entry points beside it, in a folder on PYTHONPATH.

A module of its own name, at the top: vLLM's processes import it, and they know nothing of the tests.
"""

import multiprocessing
import os


def fork_workers() -> None:
    """Let an engine core fork its workers, which is vLLM's default: they needn't import vLLM again, which takes 10 to 20 s.

    The product has them spawned like the engine core itself, since its own process has threads when it starts the core.
    """
    if multiprocessing.current_process().name.startswith("EngineCore"):
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"


def logical_gpus() -> str | None:
    """A CPU that Ray's executor takes for GPUs, where a test asks for that: the shape of a cluster without one."""
    return "assay_tests_platform.LogicalGpus" if os.environ.get("ASSAY_TESTS_LOGICAL_GPUS") else None
