"""Frozen, validated settings of a replica: its model, its rendering, its engine; and rubrics in YAML.

Imports nothing heavy, and no other package of ours than `text`.
"""
