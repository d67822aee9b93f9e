"""What `filter --rows responses` writes: a row for each kept response alone, of one form whatever the input's shape was."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from actors.records import Message
from actors.text.tool_calls import write_turn
from pipelines.data.corpus.python_rows import python_rows
from pipelines.folders.run_folder.columns import CRITERIA_SCORES, REASON, RESPONSE, REWARD, ROW, SCORES, STATUS
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.scored_corpus.read_back import Reader, ReadResponse

PROMPT, TEXT, TOOLS = "prompt", "response", "tools"
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TYPES = {PROMPT: _MESSAGES, TEXT: pa.string(), TOOLS: pa.string()}  # tools as JSON: schemas have no common type


@dataclass(frozen=True)
class ResponseRows:
    """Makes such rows: the input's own fields, `prompt` (messages), `response` (text), and, with `fields`, ours.

    `tools`, as JSON text, are there if the shape reads that field; else they are an own field.
    An own field called `prompt` or `response` is left out; `ReadResponse.left` says so.
    """

    reader: Reader
    fields: bool

    @classmethod
    def of(cls, manifest: Manifest, fields: bool, *, to_parquet: bool = False) -> "ResponseRows":
        return cls(Reader.of(manifest).carrying((PROMPT, TEXT), to_parquet=to_parquet), fields)

    @property
    def schema(self) -> pa.Schema:
        columns = self.reader.columns
        ours = [columns.ours.field(name) for name in self._our_names]
        input_fields = [columns.carried.field(name) for name in self.reader.carried]
        return pa.schema([*input_fields, *((name, _TYPES[name]) for name in self._made), *ours])

    @property
    def reads(self) -> set[str]:
        return {*self.reader.reads, *self.reader.carried, *self._our_names}

    def read(self, kept: pa.Table) -> list[ReadResponse]:
        """What the rows are made of. Raises `SourceError` for a row that has changed since it was scored."""
        return list(self.reader.responses(kept))

    def rows(self, kept: pa.Table, responses: Sequence[ReadResponse]) -> list[dict[str, Any]]:
        """The rows for JSONL, whose own fields have the values of the records, of whatever type."""
        ours = python_rows(kept.select(self._our_names), None) if self.fields else [{}] * len(responses)
        made = self._made
        rows = [
            {**read.fields, **{name: make(read) for name, make in made.items()}, **fields}
            for read, fields in zip(responses, ours, strict=True)
        ]
        return list(self.reader.columns.as_objects(rows))

    def table(self, kept: pa.Table, responses: Sequence[ReadResponse]) -> pa.Table:
        """The rows for Parquet, of a Parquet corpus: its own fields are columns, and keep their types."""
        made = {name: pa.array(map(make, responses), _TYPES[name]) for name, make in self._made.items()}
        return pa.table([made[name] if name in made else kept.column(name) for name in self.schema.names], self.schema)

    @property
    def _made(self) -> dict[str, Callable[[ReadResponse], object]]:
        made = {PROMPT: lambda read: _messages(read.context), TEXT: lambda read: read.text}
        tools = {TOOLS: lambda read: f"[{', '.join(read.tools)}]" if read.tools else None}
        return made | tools if TOOLS in self.reader.shape.fields else made

    @property
    def _our_names(self) -> list[str]:
        criteria = (CRITERIA_SCORES,) if self.reader.columns.row_outputs else ()
        names = (ROW, RESPONSE, REWARD, SCORES, *criteria, STATUS, REASON) if self.fields else ()
        return [self.reader.columns.prefix + name for name in names]

    def is_mixed(self, kept: pa.Table, responses: Sequence[ReadResponse]) -> bool:
        """Whether an own value has another type than the column of its name, or none: only the record has it then.

        Rows are from records, and columns hold what fits the type of the first rows: more values than that are of others.
        """
        values = Counter(name for read in responses for name, value in read.fields.items() if value is not None)
        fitting = Counter({name: len(kept) - kept.column(name).null_count for name in self.reader.carried})
        return bool(values - fitting)


def _messages(context: Sequence[Message] | None) -> list[dict[str, str]] | None:
    return [{"role": turn.role.value, "content": write_turn(turn)} for turn in context] if context else None
