"""The inference engine: its protocol, vLLM behind it, a fake for tests, and the processes that an engine starts.

Knows token ids, numbers and text, and nothing of rewards, families or Ray's clusters.
"""
