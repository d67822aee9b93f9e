"""Scores benchmark files, on engines of its own or on an endpoint that somebody serves, and evaluates what was scored.

Knows nothing of how figures are computed, nor of the command line.
"""
