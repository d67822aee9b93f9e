"""Exports of a scored corpus, prompt by prompt: chosen candidates, preference pairs, and rows for trainers.

Reads scored corpora and no models. `trainers` has one module per trainer for the format of its rows.
"""
