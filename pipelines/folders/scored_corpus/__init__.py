"""A scored corpus as it is read: opened and checked for gaps, summarised, queried by SQL, and read back as candidates.

Doesn't know engines, Ray, or the jobs that write or read it.
"""
