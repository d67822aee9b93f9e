"""How the rows of one corpus are read, settled once: the shape, or the user's own columns, and what else was asked for."""

from dataclasses import dataclass

from pipelines.formats.own_columns import OwnColumns, with_principles, without_principles
from pipelines.formats.registry import PROMPT_SHAPES, SHAPES, Turns, requests
from pipelines.formats.rows import RowRequests


@dataclass(frozen=True, slots=True)
class RowShape:
    """A shape by its name, for which `own_columns` stand if there are any. Small and picklable.

    Rows are `unanswered` if they are prompts that a policy answers: each is a request with a response that isn't there yet.
    """

    name: str
    turns: Turns = "final"
    own_columns: OwnColumns | None = None
    principle_column: str | None = None
    unanswered: bool = False

    def requests(self, row: object) -> RowRequests:
        """What a row asks for."""
        known = (PROMPT_SHAPES if self.unanswered else SHAPES).get(self.name)
        shape = self.own_columns.shape() if self.own_columns else known
        assert shape is not None
        if self.principle_column is None:
            return requests(shape, row, self.turns)
        kept = self.own_columns.fields if self.own_columns else ()
        asked = requests(shape, without_principles(row, self.principle_column, kept), self.turns)
        return with_principles(asked, row, self.principle_column)
