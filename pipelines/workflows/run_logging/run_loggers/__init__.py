"""One file for each place where `log` shows a run: how a run starts, goes on and ends there.

A logger is found by being here, in a file that defines `LOGGER` (a `LoggerKind` of `run_logger`). It imports its client
when it starts, in a thread of its own, and knows nothing of scoring.
"""
