"""Conversations as files store them where they have no lists of messages: as JSON in a text, and as maps of Arrow."""

from actors.errors import Rejected
from pipelines.data.formats.content import is_conversation
from pipelines.data.formats.lines import parse_json
from pipelines.data.formats.rows import Row

# Fields that hold turns in every shape. Toucan-1.5M and nemotron-agentic-v1 have them as JSON in a text. A `prompt` or a
# `response` may be such a text itself, which somebody asks about.
_CONVERSATIONS = frozenset({"messages", "conversations", "conversation", "conversation_a", "conversation_b", "trajectory"})


def decode_conversations(row: Row) -> Row:
    """The row with its conversations as lists of messages, where they are JSON in a text or maps."""
    changed: dict[str, object] = {}
    for key, value in row.items():
        if isinstance(value, list) or key in _CONVERSATIONS:
            turns = decode_turns(value)
            if turns is not value:
                changed[key] = turns
    return {**row, **changed} if changed else row


def decode_turns(value: object) -> object:
    """The messages of a JSON text or of a list of maps; any other value as it is."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            turns = parse_json(value)
        except Rejected:
            return value
        return turns if is_conversation(turns) else value
    # Spark writes messages as array<map<string,string>>. Arrow gives a map as pairs, and nothing else of a file as tuples.
    if isinstance(value, list) and value and isinstance(value[0], list | tuple):
        return _from_map(value) if isinstance(value[0], tuple) else list(map(_from_map, value))
    return value


def _from_map(value: object) -> object:
    return dict(value) if isinstance(value, list) and value and all(map(_is_member, value)) else value


def _is_member(value: object) -> bool:
    # The keys of a map may be anything, such as structs; those of a message are texts.
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
