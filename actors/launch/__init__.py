"""What happens before an engine's first request: where its GPUs are and which engine is started.

Knows models and engines; nothing of requests and scores.
"""
