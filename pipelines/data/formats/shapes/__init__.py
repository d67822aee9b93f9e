"""One file for each shape of an input row: how it is recognised, and what it asks and answers.

A shape is found by being here, in a file that defines `SHAPE`, or `PROMPT_SHAPE` for prompts without a response
(`docs/contributing/input-formats.md`). It knows `formats.content` and no other shape's files than those it extends.
"""
