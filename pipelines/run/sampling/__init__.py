"""Rejection sampling and refinement: a policy generates candidates, a judge scores them, both are committed together.

Knows policies and judges only as pools of engines or endpoints, and nothing of the command line.
"""
