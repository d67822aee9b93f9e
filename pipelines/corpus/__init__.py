"""The input: which files there are, what they are known again by, and their rows, each with its range.

Knows nothing of what a row means, nor of what becomes of it.
"""
