"""How the rows of a corpus are read, fixed once per run: a shape or the user's own columns, and further options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

from actors.settings.same_plugin import find
from pipelines.data.formats.content import SYSTEMS
from pipelines.data.formats.mixed import MIXED, mixed
from pipelines.data.formats.own_columns import Columns, OwnColumns, with_fields, without_fields
from pipelines.data.formats.registry import PROMPT_SHAPES, SHAPES, Turns, requests
from pipelines.data.formats.rows import RowRequests, Shape
from pipelines.data.formats.written_out import take_apart


@dataclass(frozen=True, slots=True)
class RowShape:
    """A shape by its name, replaced by `own_columns` if given. Small and picklable.

    `columns` hold the fields of requests that the model reads. `unanswered`: the rows are prompts for a policy, each of
    which yields a request with an empty response. `written_out`: prompts may be conversations written out as one text,
    which are taken apart. `plugins` are shapes with their plug-ins: of a mixed corpus all, else its own if it is of one.
    """

    name: str
    turns: Turns = "final"
    own_columns: OwnColumns | None = None
    columns: Columns = ()
    unanswered: bool = False
    written_out: bool = False
    plugins: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, identity: Mapping[str, Any], *, unanswered: bool) -> Self:
        own_columns = identity["own_columns"]
        plugins = {identity["shape"]: identity.get("shape_plugin"), **identity.get("shapes", {})}
        return cls(
            identity["shape"],
            identity["turns"],
            own_columns and OwnColumns.read(own_columns),
            tuple(identity.get("fields", {}).items()),
            unanswered,
            identity["written_out"],
            tuple((name, plugin) for name, plugin in plugins.items() if plugin),
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
        return _shape(self.name, self.plugins, self.unanswered)

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


def plugins_of(name: str, unanswered: bool) -> tuple[tuple[str, str], ...]:
    """The plug-ins of a shape, as `RowShape` has them, where a run begins."""
    available = PROMPT_SHAPES if unanswered else SHAPES
    plugins = {other: available.plugin_of(other) for other in (available if name == MIXED else [name])}
    return tuple((other, plugin) for other, plugin in plugins.items() if plugin)


# Cached: it is asked for with each row. Raises as `find`.
@cache
def _shape(name: str, plugins: tuple[tuple[str, str], ...], unanswered: bool) -> Shape:
    available, plugin_of = PROMPT_SHAPES if unanswered else SHAPES, dict(plugins)
    if name != MIXED:
        return find(available, name, plugin_of.get(name))
    # Not of those that this node alone has: a row that one of them fits would be `two_shapes`.
    ours = (other for other in available if available.plugin_of(other) is None)
    return mixed({other: find(available, other, plugin_of.get(other)) for other in sorted({*ours, *plugin_of})})
