"""Statistics of graded items: intervals, accuracy by margin and calibration, a judge's votes, two models on the same items.

Computes from cells and items in memory; doesn't know where they were read, nor which benchmark they are of.
"""
