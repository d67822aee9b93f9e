"""Choices, preference pairs and trainer files, made of the candidates of a scored corpus, prompt by prompt.

Reads scored corpora and no models; how each trainer wants its rows is in `trainers`, a file each.
"""
