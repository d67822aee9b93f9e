"""Turns an input row into requests to score: pure functions, no heavy imports.

row = parse(line)                              # bytes -> dict, or Rejected
shape = detect(sample)                         # or SHAPES["messages"]
row_requests = requests(shape, row, turns="final")   # RowRequests: what to score, and what is rejected
"""

from pipelines.data.formats.calls import count_calls_without_tools
from pipelines.data.formats.content import with_policy_system
from pipelines.data.formats.lines import parse
from pipelines.data.formats.mixed import MIXED, check_mixed, explain_detection, formats, prompt_formats
from pipelines.data.formats.own_columns import OwnColumns, check_column, with_fields
from pipelines.data.formats.registry import PROMPT_READER, PROMPT_SHAPES, ROW_READER, SHAPES, detect, find_unread, requests
from pipelines.data.formats.row_shape import RowShape
from pipelines.data.formats.rows import CANDIDATE, ONLY_RESPONSE, RowRequests, Shape, Unjudgeable
from pipelines.data.formats.written_out import is_written_out, note_repeated_prompts, take_apart

__all__ = [
    "CANDIDATE",
    "MIXED",
    "ONLY_RESPONSE",
    "PROMPT_READER",
    "PROMPT_SHAPES",
    "ROW_READER",
    "SHAPES",
    "OwnColumns",
    "RowRequests",
    "RowShape",
    "Shape",
    "Unjudgeable",
    "check_column",
    "check_mixed",
    "count_calls_without_tools",
    "detect",
    "explain_detection",
    "find_unread",
    "formats",
    "is_written_out",
    "note_repeated_prompts",
    "parse",
    "prompt_formats",
    "requests",
    "take_apart",
    "with_fields",
    "with_policy_system",
]
