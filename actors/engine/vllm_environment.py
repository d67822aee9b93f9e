"""The environment variables of vLLM, which reads some of them when it is imported."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def set_environment() -> None:
    """Set those that the user hasn't set, also for the processes that vLLM starts."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # no calls home
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")  # INFO is some fifty lines for a start
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout belongs to our commands
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # to fork a process with threads (ours, Ray's) can hang
    os.environ.setdefault("VLLM_ENGINE_READY_TIMEOUT_S", "3600")  # 340B weights take longer to load than the default, 600
    # On a GPU, attention of a float32 model is Triton's, which multiplies in TF32 by default. On an H200 that moved rewards
    # of the built-in models by up to 0.013; with this, all are equal to transformers' float32 to 1e-4. No other precision is
    # affected.
    os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started in this block, but for those that the user has set.

    The environment is the process's: engines that are started in two threads at a time would see each other's.
    """
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
