"""What the JSON of every route has in common: how bodies are read, and the fields that several routes share.

Knows no particular route; those are in `deploy.api`, a wire format a file.
"""
