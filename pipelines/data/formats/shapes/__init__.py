"""How each shape of an input row is recognised, and what it asks and answers.

A shape is found by standing in `SHAPES` of a module here, or in `PROMPT_SHAPES` if it is one of prompts without a response
(`docs/contributing/input-formats.md`). A plain one is an entry in a table (`declare.py`); one with rules of its own has a
module.
"""
