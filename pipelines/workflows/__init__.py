"""Runs that build on the main job: several models, rows scored again, Datasets, endpoints; what watches runs, and plans."""
