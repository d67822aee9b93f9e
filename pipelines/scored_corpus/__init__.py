"""A scored corpus on disk: parts, their columns, the manifest, the summary, and how each is read and checked.

Knows nothing of engines, of Ray, and of the jobs that write or read it.
"""
