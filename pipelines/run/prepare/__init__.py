"""Turns settings into a resolved run, and raw rows into rendered requests or policy prompts.

Everything that decides a number (`identity`) is fixed here, before the first engine starts. Writes no files.
"""
