"""A platform of vLLM's for tests: computes on the CPU, and is placed by Ray as a GPU would be."""

from vllm.platforms.cpu import CpuPlatform


class LogicalGpus(CpuPlatform):
    """What `assay_tests_vllm.logical_gpus` names."""

    ray_device_key = "GPU"
