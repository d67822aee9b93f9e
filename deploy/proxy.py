"""The old place of `deploy.ray_serve.proxy`, for clusters whose environment names it. Goes with the next release."""

from deploy.ray_serve.proxy import limit_heads

__all__ = ["limit_heads"]
