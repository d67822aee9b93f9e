"""ShareGPT: {"conversations": [{"from": "human" | "gpt" | ..., "value": str}, ...], "system"?: str}.

Turns that have OpenAI's keys, as some of these files do, are read as what they are.
"""

from pipelines.formats.content import ROLES, entries, field, systems
from pipelines.formats.rows import Row, RowRequests
from pipelines.formats.shape import Shape
from pipelines.formats.turns import RowTurn, assistant_turns, final_turn, number_turns

SPEAKERS = {
    **{name: name for name in ROLES},
    "human": "user",
    **dict.fromkeys(["gpt", "chatgpt", "bard", "bing", "bot", "model", "function_call", "tool_call"], "assistant"),
    **dict.fromkeys(["observation", "function_response", "tool_response"], "tool"),
}
"""What `from` says, in lower case, and the role that it means."""

TOOL_CALLS = ("function_call", "tool_call")


def looks_like(row: Row) -> bool:
    """A list of turns, in a row that is no preference pair and doesn't tell the roles by a `mask`, as NeMo does."""
    return (
        is_talk(row.get("conversations"))
        and not isinstance(row.get("mask"), str)
        and not ("chosen" in row and "rejected" in row)
    )


def is_turn(value: object) -> bool:
    """Whether this was meant as a turn, readable or not."""
    return isinstance(value, dict) and ("from" in value or "role" in value)


def is_talk(value: object) -> bool:
    """Whether this was meant as a list of turns."""
    return isinstance(value, list) and any(map(is_turn, value))


def openai(entry: object) -> object:
    """The turn in OpenAI's form. What is wrong with it is still wrong then, and is found when it is read."""
    if not isinstance(entry, dict) or "from" not in entry:
        return entry
    name = entry["from"]
    turn = {key: value for key, value in entry.items() if key not in ("from", "value")}
    turn["role"] = SPEAKERS.get(name.lower(), name) if isinstance(name, str) else name
    if "value" in entry:
        turn["content"] = entry["value"]
    if isinstance(name, str) and name.lower() in TOOL_CALLS:
        turn["tool_calls"] = True
    return turn


def read(row: Row) -> RowRequests:
    """The final assistant turn."""
    return final_turn(_turns(row))


def read_turns(row: Row) -> RowRequests:
    """Every assistant turn, by its position in `conversations`."""
    return assistant_turns(_turns(row))


def _turns(row: Row) -> list[RowTurn]:
    items = entries(field(row, "conversations"))
    return number_turns([openai(entry) for entry in items], systems(row))


SHAPE = Shape(
    "sharegpt",
    "a conversation in ShareGPT's form; its last turn, or each turn of the assistant's, is judged",
    "`conversations`, a list of {from, value}",
    looks_like,
    read,
    read_turns,
    reads=("conversations",),
)
