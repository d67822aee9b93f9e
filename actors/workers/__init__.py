"""Scorers and policies inside Ray's actors and Serve's replicas, and the bound on engines that crash.

The only package of `actors` that runs under Ray, beside `launch.placement`.
"""
