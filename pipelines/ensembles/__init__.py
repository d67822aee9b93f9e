"""Several models on one corpus: each scores it, and their rewards, aligned row by row, become one scored corpus.

Knows nothing of sampling, of the command line, and of where a trainer takes the result.
"""
