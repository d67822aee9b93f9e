"""Filters a scored corpus: exact selection over all of it, and the files of kept and other responses.

Needs no model, no engine and no GPU, and never writes into the scored folder.
"""
