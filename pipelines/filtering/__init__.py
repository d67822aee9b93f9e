"""Filters a scored corpus: exact selection by passes over its parts, and the files of kept and other responses.

Needs no model, no engine and no GPU, and never writes into the scored folder.
"""
