"""The surroundings of a run: Ray's start and workers, engine pools, progress, timing, and jobs on a cluster.

Counts parts and units of work, and doesn't know what a step does with them.
"""
