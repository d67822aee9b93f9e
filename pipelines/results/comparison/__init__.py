"""Compares two scored corpora of the same rows: matches their responses and tells what changed.

Doesn't know engines or Ray; it reads parts as filters and reports do, and keeps all that grows with rows in DuckDB on disk.
"""
