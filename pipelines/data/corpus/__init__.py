"""The input corpus: finds its files, fingerprints them, and reads their rows, each with its range of positions.

Doesn't know what a row means, or what is done with it.
"""
