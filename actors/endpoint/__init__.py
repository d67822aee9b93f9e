"""Models behind an address: requests with patience, what is known of the model, what they cost, and an engine made of them.

Knows no rows and no folders; where something must outlast the process, it is handed a place for it (`Notes`).
"""
