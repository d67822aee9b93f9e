"""Evaluates reward models: benchmark figures as a pure function of scored corpora, with intervals, coverage and identity.

Reads scored folders and starts no engine; doesn't know how they were scored, nor the command line.
"""
