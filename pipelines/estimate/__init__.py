"""What a run will take, before it starts: tokens, rejected rows, GPU-hours and money, each with its interval.

Reads the corpus as the run does and starts no engine; `compare_run` holds a finished run against its estimate.
"""
