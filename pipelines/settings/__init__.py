"""What each command takes, as frozen, validated settings with one set of names, and recipes made of them.

Imports nothing heavy, so that --help is instant, and decides nothing.
"""
