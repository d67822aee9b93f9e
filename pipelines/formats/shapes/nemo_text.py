"""NeMo-Aligner's reward-model rows, regression and Bradley-Terry: {"text": conversation in NeMo's template, "label"?}."""

from actors.errors import Rejected
from actors.records import Reason
from pipelines.formats.content import entries, field, systems
from pipelines.formats.extra_ids import START, split_conversation
from pipelines.formats.rows import Row, RowRequests
from pipelines.formats.shape import Shape
from pipelines.formats.turns import RowTurn, assistant_turns, final_turn, number_turns


def looks_like(row: Row) -> bool:
    """A text that begins as the template does: other texts have nobody who speaks."""
    text = row.get("text")
    return isinstance(text, str) and text.startswith(START)


def read(row: Row) -> RowRequests:
    """The final assistant turn."""
    return final_turn(_turns(row))


def read_turns(row: Row) -> RowRequests:
    """Every assistant turn, by its position among the turns after the system prompt."""
    return assistant_turns(_turns(row))


def _turns(row: Row) -> list[RowTurn]:
    text = field(row, "text")
    if not isinstance(text, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, type(text).__name__)
    system, turns = split_conversation(text)
    return number_turns(entries(turns), (system, *systems(row)))


SHAPE = Shape(
    "nemo-text",
    "a conversation in NeMo's template (NeMo-Aligner's reward-model rows)",
    "`text` that begins with <extra_id_0>System",
    looks_like,
    read,
    read_turns,
    reads=("text",),
)
