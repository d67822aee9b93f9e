"""The columns that `--by` names: plain ones, fields of nested ones (`meta.topic`), and fields in the record of JSON rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from actors.errors import SettingsError
from actors.text.counted import first_of
from pipelines.data.corpus.readers import RECORD
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.scored_corpus.databases import quoted

_MOST_NAMES = 30  # of hundreds of fields; those that are in no other come first


class GroupColumn(NamedTuple):
    """A column of groups: its name in `--by`, the column of the parts that holds it, and its value as SQL.

    The value is null where there is none, and for a list or an object in a record.
    """

    name: str
    holder: str
    sql: str


def group_name(position: int) -> str:
    """The column of a report's table that holds the groups of the `by` at this position.

    Not the name in `by`: that may be a column of ours, or a text in quotes.
    """
    return f"group_{position}"


def group_column(columns: Columns, name: str) -> GroupColumn:
    """The column of a name. Raises `SettingsError` if there can't be one; a record's field may still be in no row."""
    paths = _paths_by_name(columns.ours_first)
    if name in paths:
        holder, *within = paths[name]
        value = quoted(holder)
        for field in within:
            value = f"struct_extract({value}, {literal(field)})"
        return GroupColumn(name, holder, value)
    if columns.is_json and name not in columns.ours_first.names:
        return GroupColumn(name, RECORD, _record_field(name.split(".")))
    raise no_column(columns, name)


def no_column(columns: Columns, name: str) -> SettingsError:
    """The error for a name that no column has, with those that there are."""
    paths = _paths_by_name(pa.schema([field for field in columns.ours_first if field.name not in columns.ours.names]))
    shown = first_of(sorted(paths, key=lambda path: len(paths[path])), _MOST_NAMES) or "none"
    nested = "; a field inside another is named with a dot, such as meta.topic" if columns.is_json else ""
    return SettingsError(f"--by {name}: there is no column of this name with plain values; the input has {shown}{nested}")


def _record_field(path: Sequence[str]) -> str:
    place = literal("".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in path))  # RFC 6901
    # A file may begin with a byte-order mark; a record that isn't JSON, as a rejected row's, has no fields.
    value = f"try(json_extract(ltrim(decode({quoted(RECORD)}), chr(65279)), {place}))"
    return f"case when json_type({value}) not in ('OBJECT', 'ARRAY') then {value}->>'$' end"


def _paths_by_name(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    paths = [path for field in schema for path in _paths(field)]
    # The shortest path comes last and stays: a column `a.b` goes before field b of column a.
    return {".".join(path): path for path in sorted(paths, key=len, reverse=True)}


def _paths(field: pa.Field) -> Iterator[tuple[str, ...]]:
    if pa.types.is_struct(field.type):
        yield from ((field.name, *path) for inner in field.type for path in _paths(inner))
    elif not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)):
        yield (field.name,)


def literal(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"
