"""Scoring, sampling and filtering as steps on Ray Datasets of the user's own pipeline. All of it is lazy.

Knows no folder as output: a job that commits into a folder lives in its own package.
"""
