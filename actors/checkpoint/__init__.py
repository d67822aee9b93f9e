"""A model as it lies on disk or on the hub: its files, what they say, and hashes of them.

Knows nothing of families: what a checkpoint means is decided above.
"""
