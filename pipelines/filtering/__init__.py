"""Which responses of a scored corpus are kept, exactly, by passes over its parts; and the files they are written to.

Needs no model, no engine and no GPU, and never writes into the scored folder.
"""
