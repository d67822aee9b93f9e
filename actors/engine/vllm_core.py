"""Assay's code inside processes that are forked with vLLM: engine cores, and the actors of engines."""

import gc
import os

import torch
from vllm.logger import _configure_vllm_root_logger
from vllm.platforms import current_platform
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from actors.timeline import mark


def adapt_to_environment() -> None:
    """Repeat what vLLM and torch did when the fork server imported them, with the environment of this process."""
    # After a fork, an initialised CUDA shows as a "bad fork".
    if torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork():
        raise RuntimeError("the process that engines are forked from has initialised CUDA; ASSAY_FORK_SERVER=0 spawns them")
    _configure_vllm_root_logger()
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads.split(",")[0]))
    if current_platform.is_cpu():
        # At its end vLLM unfreezes all imported objects and collects twice, for engines in the caller's own process: 1.3 s.
        # This process ends, and its memory with it. Not so on GPUs, where that hasn't been tried.
        gc.unfreeze = lambda: None


class SingleWorker(UniProcExecutor):
    """The only worker of an engine on a CPU, inside the engine core's process: one import and one hop less.

    vLLM starts a process even for one CPU worker, because OpenMP reads from the environment at its start which CPUs its
    threads may use. Here the process itself is bound, before OpenMP has started a thread.
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
