"""OpenAI messages: {"messages": [{"role": ..., "content": ...}, ...]}."""

from pipelines.formats.content import conversation, entries, is_conversation, systems, with_row_system
from pipelines.formats.prompts import open_end, prompt_request
from pipelines.formats.rows import Row, RowRequests
from pipelines.formats.shape import Shape
from pipelines.formats.turns import assistant_turns, final_turn, number_turns


def looks_like(row: Row) -> bool:
    """A list of messages, in a row that isn't a preference pair (ultrafeedback_binarized repeats `chosen` there)."""
    return is_conversation(row.get("messages")) and not ("chosen" in row and "rejected" in row)


def read(row: Row) -> RowRequests:
    """The final assistant turn."""
    return final_turn(number_turns(entries(row.get("messages")), systems(row)))


def read_turns(row: Row) -> RowRequests:
    """Every assistant turn: `turn[3]` answers messages 0 to 2."""
    return assistant_turns(number_turns(entries(row.get("messages")), systems(row)))


def read_prompt(row: Row) -> RowRequests:
    """The conversation up to the assistant's last turn, to be answered."""
    return prompt_request(lambda: with_row_system(row, conversation(open_end(entries(row.get("messages"))))))


SHAPE = Shape(
    "messages",
    "a conversation in OpenAI's form; its last turn, or each turn of the assistant's, is judged",
    "`messages`, a list of {role, content}",
    looks_like,
    read,
    read_turns,
    reads=("messages",),
)
PROMPT_SHAPE = Shape(
    "messages",
    "a conversation in OpenAI's form, to be answered",
    "`messages`, a list of {role, content}",
    lambda row: is_conversation(row.get("messages")),
    read_prompt,
    reads=("messages",),
)
