"""Measurements, each one a command: `make bench ARGS=memory`."""
