"""The folder that a run writes: its parts and their columns, its manifest, and how a run starts, resumes and finishes there.

Doesn't know engines, Ray, what the scores in the parts mean, or the jobs that write them.
"""
