"""What happens before an engine's first request: where its GPUs are, which engine is started, which checkpoint is converted.

Knows models and engines; nothing of requests and scores.
"""
