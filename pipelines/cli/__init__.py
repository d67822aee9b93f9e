"""The command line: one module a group of commands, their options made of the settings, and what a person reads.

Nothing imports it: whatever Python users need too lives in the packages below.
"""
