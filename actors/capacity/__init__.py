"""How many GPUs a model takes: its size, the layouts it fits into, and the published speed of an engine.

Arithmetic only: where GPUs really are is `launch.placement`.
"""
