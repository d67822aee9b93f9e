"""The models of an endpoint by name: how each is asked, with a deadline, and how much work a request is.

Knows no HTTP beside the errors that a client understands.
"""
