"""How the rows of a corpus are read, fixed once per run: a shape or the user's own columns, and further options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pipelines.data.formats.content import SYSTEMS
from pipelines.data.formats.mixed import MIXED, formats, prompt_formats
from pipelines.data.formats.own_columns import Columns, OwnColumns, with_fields, without_fields
from pipelines.data.formats.registry import Turns, requests
from pipelines.data.formats.rows import RowRequests, Shape
from pipelines.data.formats.written_out import take_apart


@dataclass(frozen=True, slots=True)
class RowShape:
    """A shape by its name, replaced by `own_columns` if given. Small and picklable.

    `columns` hold the fields of requests that the model reads. `unanswered`: the rows are prompts for a policy, each of
    which yields a request with an empty response. `written_out`: prompts may be conversations written out as one text,
    which are taken apart.
    """

    name: str
    turns: Turns = "final"
    own_columns: OwnColumns | None = None
    columns: Columns = ()
    unanswered: bool = False
    written_out: bool = False

    @classmethod
    def read(cls, identity: Mapping[str, Any], *, unanswered: bool) -> Self:
        own_columns = identity["own_columns"]
        return cls(
            identity["shape"],
            identity["turns"],
            own_columns and OwnColumns.read(own_columns),
            tuple(identity.get("fields", {}).items()),
            unanswered,
            identity["written_out"],
        )

    @property
    def fields(self) -> frozenset[str]:
        """The fields of a row that hold its prompt, its responses and its system prompt; all others are the row's own."""
        named_system = self.own_columns is not None and self.own_columns.system is not None
        return frozenset({*self.shape.reads, *(() if named_system else SYSTEMS)})

    @property
    def shape(self) -> Shape:
        if self.own_columns:
            return self.own_columns.shape()
        return (prompt_formats() if self.unanswered else formats())[self.name]

    @property
    def is_mixed(self) -> bool:
        return self.name == MIXED and self.own_columns is None

    def of_row(self, name: str) -> Self:
        # How a row of a mixed corpus is read whose shape is known.
        shaped = replace(self, name=name)  # with `turns` all, rows of shapes without turns have their one response judged
        return shaped if shaped.shape.read_turns else replace(shaped, turns="final")

    def requests(self, row: object) -> RowRequests:
        kept_fields = self.own_columns.fields if self.own_columns else ()
        row_requests = requests(self.shape, without_fields(row, self.columns, kept_fields), self.turns)
        row_requests = take_apart(row_requests) if self.written_out else row_requests
        return with_fields(row_requests, row, self.columns) if self.columns else row_requests
