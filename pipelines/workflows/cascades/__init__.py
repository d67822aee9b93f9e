"""Cascades: each model scores the rows that the one before it left open, with a bound on what the last would say otherwise.

Knows the members of ensembles, and how one corpus is made of their runs.
"""
