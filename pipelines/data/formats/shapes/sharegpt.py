"""ShareGPT: {"conversations": [{"from": "human" | "gpt" | ..., "value": str}, ...], "system"?: str}.

Turns that have OpenAI's keys, as some of these files do, are read as what they are.
"""

from pipelines.data.formats.rows import Row
from pipelines.data.formats.turns import conversation_shape, open_conversation_shape


def _has_mask(row: Row) -> bool:
    """Whether a `mask` tells the roles, as in NeMo's rows."""
    return isinstance(row.get("mask"), str)


_SHARED = ("sharegpt", "conversations", "a conversation in ShareGPT's form", "{from, value}", _has_mask)
SHAPE = conversation_shape(*_SHARED)
PROMPT_SHAPE = open_conversation_shape(*_SHARED)
