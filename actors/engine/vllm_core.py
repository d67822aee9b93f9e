"""What Assay does inside vLLM's engine core process, beside vLLM's own code."""

import os

import torch
from vllm.logger import _configure_vllm_root_logger
from vllm.platforms import current_platform
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from actors.timeline import mark


def adapt_to_environment() -> None:
    """Do again what vLLM and torch did when the fork server imported them, in an environment that may have been another."""
    if torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork():  # as which the first of them counts after a fork
        raise RuntimeError("the process that engines are forked from has initialised CUDA; ASSAY_FORK_SERVER=0 spawns them")
    _configure_vllm_root_logger()
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads.split(",")[0]))


class SingleWorker(UniProcExecutor):
    """The only worker of an engine on a CPU, in the engine core's own process: one import and one hop less.

    vLLM gives even one CPU worker a process, to bind its threads by the environment that OpenMP reads at its start. Here the
    process is bound before OpenMP has started any.
    """

    def _init_executor(self) -> None:
        if current_platform.is_cpu():
            manager = OMPProcessManager(self.vllm_config)
            if manager.cpu_lists:
                os.sched_setaffinity(0, manager.cpu_lists[0])
                torch.set_num_threads(len(manager.cpu_lists[0]))
        mark("worker, and weights")
        super()._init_executor()
        mark("cache and warm-up")
