"""Scores rows of a scored folder again, from what its parts hold: in place (`retry`), or to compare (`verify`).

Knows the main job, whose pipeline it runs on chosen rows. Doesn't know ensembles, sampling or the command line.
"""
