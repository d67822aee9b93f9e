"""What a family of reward models must say: how it is asked, what its head or its text means, how judges vote.

Knows no particular model; those are in `actors.models`, a file each.
"""
