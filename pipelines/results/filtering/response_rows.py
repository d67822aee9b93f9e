"""What `filter --rows responses` writes: a row for each kept response alone, of one form whatever the input's shape was."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from actors.records import Message
from pipelines.data.corpus.python_rows import python_rows
from pipelines.folders.run_folder.columns import REASON, RESPONSE, REWARD, ROW, SCORES, STATUS
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.scored_corpus.candidates import LeftField, count_left
from pipelines.folders.scored_corpus.read_back import Reader, ReadResponse

PROMPT, TEXT = "prompt", "response"
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


@dataclass(frozen=True)
class ResponseRows:
    """Makes such rows: the input's own fields, `prompt` (messages), `response` (text), and, with `fields`, ours.

    An own field called `prompt` or `response` is left out. What is left out is counted (`count_left`).
    """

    reader: Reader
    fields: bool

    @classmethod
    def of(cls, manifest: Manifest, fields: bool) -> "ResponseRows":
        """The maker of rows for a scored folder."""
        return cls(Reader.of(manifest).carrying((PROMPT, TEXT)), fields)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        input_fields = [self.reader.columns.carried.field(name) for name in self.reader.carried]
        return pa.schema([*input_fields, (PROMPT, _MESSAGES), (TEXT, pa.string()), *self._ours])

    @property
    def reads(self) -> set[str]:
        """The columns to read from the parts."""
        return {*self.reader.reads, *self.reader.carried, *self._our_names}

    def rows(self, kept: pa.Table, counts: "OwnFieldCounts") -> list[dict[str, Any]]:
        """The rows of kept responses. Raises `SourceError` for a row that has changed since it was scored."""
        responses, ours = list(self.reader.responses(kept)), python_rows(kept.select(self._our_names), None)
        counts.left.update(count_left(read.left for read in responses))
        counts.mixed |= bool(self._unfit(responses, kept))
        return [
            {**read.fields, PROMPT: _messages(read.context), TEXT: read.text, **fields}
            for read, fields in zip(responses, ours or [{}] * len(responses), strict=True)
        ]

    def table(self, kept: pa.Table, counts: "OwnFieldCounts") -> pa.Table:
        """The rows as columns, in which an own value that doesn't fit the column of its name is null. Raises as `rows`."""
        responses = list(self.reader.responses(kept))
        unfit = [{name: LeftField.NO_COLUMN} for name in self._unfit(responses, kept).elements()]
        counts.left.update(count_left([*unfit, *(read.left for read in responses)]))
        columns = {name: kept.column(name) for name in (*self.reader.carried, *self._our_names)}
        columns[PROMPT] = pa.array([_messages(read.context) for read in responses], _MESSAGES)
        columns[TEXT] = pa.array([read.text for read in responses], pa.string())
        return pa.table([columns[name] for name in self.schema.names], self.schema)

    def _unfit(self, responses: Sequence[ReadResponse], kept: pa.Table) -> Counter[str]:
        """How many own values don't fit the column of their name, or have none, by name: those that only the record has."""
        values = Counter(name for read in responses for name, value in read.fields.items() if value is not None)
        fitting = {name: len(kept) - kept.column(name).null_count for name in self.reader.carried}
        return values - Counter(fitting)

    @property
    def _ours(self) -> list[pa.Field]:
        columns = self.reader.columns
        names = (ROW, RESPONSE, REWARD, SCORES, STATUS, REASON) if self.fields else ()
        return [columns.ours.field(columns.prefix + name) for name in names]

    @property
    def _our_names(self) -> list[str]:
        return [field.name for field in self._ours]


@dataclass
class OwnFieldCounts:
    """What became of own values in a file: `left` as by `count_left`; `mixed`: some in it don't fit their columns."""

    left: Counter[str] = field(default_factory=Counter)
    mixed: bool = False


def _messages(context: Sequence[Message] | None) -> list[dict[str, str]] | None:
    return [{"role": turn.role.value, "content": turn.content} for turn in context] if context else None
