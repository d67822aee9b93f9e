"""The private Ray of a run: its start without unneeded processes, its forked workers, and the deletion of its files.

Knows Ray's internals, and nothing of what runs on it; where `RAY_ADDRESS` names a cluster, none of this is used.
"""
