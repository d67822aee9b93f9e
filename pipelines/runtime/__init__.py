"""What surrounds a run: Ray's start and workers, pools of engines, progress, timing, jobs on a cluster.

Knows parts and units of work only to count them, and nothing of what a step does with them.
"""
