"""`log`: shows a run in the loggers of teams while it works, each in a thread of its own, so that none can stop a run.

Doesn't know what is scored, or by what.
"""
