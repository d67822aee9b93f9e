"""What an endpoint counts, and the metrics of all nodes as one text.

Knows no route and no model.
"""
