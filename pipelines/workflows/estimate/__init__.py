"""Estimates for a run before it starts: tokens, rejected rows, GPU-hours and cost, each with a 95 % interval.

Reads the corpus as the run does and starts no engine.
"""
