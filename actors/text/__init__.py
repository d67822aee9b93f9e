"""Rules on plain text: marks of reasoning, delimiters, patterns, bounds on length, common beginnings.

Knows no model and no tokenizer's files.
"""
