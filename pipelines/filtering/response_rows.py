"""What `filter --rows responses` writes: a row for each kept response alone, of one form whatever the input's shape was."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.run_folder.columns import REASON, RESPONSE, REWARD, ROW, SCORES, STATUS
from pipelines.run_folder.manifest import Manifest
from pipelines.scored_corpus.read_back import Reader

PROMPT, TEXT = "prompt", "response"
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


@dataclass(frozen=True)
class ResponseRows:
    """Makes such rows: the input's own flat fields, `prompt` (messages), `response` (text), and, with `fields`, ours.

    An own field called `prompt` or `response` is left out.
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
        return {*self.reader.reads, *(field.name for field in self._ours)}

    def table(self, kept: pa.Table) -> pa.Table:
        """The rows of kept responses. Raises `SourceError` for a row that has changed since it was scored."""
        responses = list(self.reader.responses(kept))
        prompts: list[Any] = [
            context and [{"role": turn.role.value, "content": turn.content} for turn in context] for context, _ in responses
        ]
        texts = [text for _, text in responses]
        columns = {name: kept.column(name) for name in (*self.reader.carried, *(field.name for field in self._ours))}
        columns |= {PROMPT: pa.array(prompts, _MESSAGES), TEXT: pa.array(texts, pa.string())}
        return pa.table([columns[name] for name in self.schema.names], self.schema)

    @property
    def _ours(self) -> list[pa.Field]:
        columns = self.reader.columns
        names = (ROW, RESPONSE, REWARD, SCORES, STATUS, REASON) if self.fields else ()
        return [columns.ours.field(columns.prefix + name) for name in names]
