"""A scored corpus on disk: its parts, columns, manifest and summary, and how each is read and checked.

Doesn't know engines, Ray, or the jobs that write or read it.
"""
