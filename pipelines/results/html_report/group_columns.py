"""The columns that `--by` names: plain ones, fields of nested ones (`meta.topic`), and fields in the record of JSON rows."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from actors.errors import SettingsError
from actors.text.counted import first_of
from pipelines.data.corpus.readers import RECORD
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.scored_corpus.databases import quoted

_MOST_NAMES = 30


class GroupColumn(NamedTuple):
    """A column of groups: its name in `--by`, the column of the parts that holds it, and where in that it is.

    `path` is empty of a plain column. `in_record`: the column is the raw record, and the path that of a JSON field.
    """

    name: str
    holder: str
    path: tuple[str, ...] = ()
    in_record: bool = False

    @property
    def sql(self) -> str:
        """Its value as SQL: null where there is none, and for a list or an object in a record."""
        if self.in_record:
            place = _text("".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in self.path))  # RFC 6901
            # A file may begin with a byte-order mark; a record that isn't JSON, as a rejected row's, has no fields.
            value = f"try(json_extract(ltrim(decode({quoted(self.holder)}), chr(65279)), {place}))"
            return f"case when json_type({value}) not in ('OBJECT', 'ARRAY') then {value}->>'$' end"
        value = quoted(self.holder)
        for name in self.path:
            value = f"struct_extract({value}, {_text(name)})"
        return value

    @property
    def is_plain(self) -> bool:
        """Whether it is a column of the parts itself."""
        return not self.path


def group_column(columns: Columns, name: str) -> GroupColumn:
    """The column of a name. Raises `SettingsError` if there can't be one; a record's field may still be in no row."""
    schema = columns.ours_first
    if name in _plain_names(schema):
        return GroupColumn(name, name)
    holder, *path = name.split(".")
    if path and name in _names_within(schema):
        return GroupColumn(name, holder, tuple(path))
    if columns.is_json and name not in schema.names:
        return GroupColumn(name, RECORD, (holder, *path), in_record=True)
    raise no_column(columns, name)


def no_column(columns: Columns, name: str) -> SettingsError:
    """The error for a name that no column has, with those that there are."""
    schema = pa.schema([field for field in columns.ours_first if field.name not in columns.ours.names])
    names = [*_plain_names(schema), *_names_within(schema)]
    shown = first_of(names, _MOST_NAMES) or "none"
    nested = "; a field inside another is named with a dot, such as meta.topic" if columns.is_json else ""
    return SettingsError(f"--by {name}: there is no column of this name with plain values; the input has {shown}{nested}")


def holders(columns: Columns, groups: Sequence[GroupColumn]) -> pa.Schema:
    """The columns of the parts that hold groups, nested ones with no more of their fields than are needed."""
    paths: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for group in groups:
        paths[group.holder].append(() if group.in_record else group.path)
    return pa.schema([_pruned(columns.schema.field(holder), places) for holder, places in paths.items()])


def _pruned(field: pa.Field, paths: Sequence[tuple[str, ...]]) -> pa.Field:
    if () in paths:
        return field
    inner: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for name, *rest in paths:
        inner[name].append(tuple(rest))
    return field.with_type(pa.struct([_pruned(field.type.field(name), rest) for name, rest in inner.items()]))


def _plain_names(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _is_plain(field.type)]


def _names_within(schema: pa.Schema) -> list[str]:
    """The names of plain fields inside nested columns, with dots."""
    return [".".join(path) for field in schema for path in _paths(field) if len(path) > 1]


def _paths(field: pa.Field) -> Iterator[tuple[str, ...]]:
    if _is_plain(field.type):
        yield (field.name,)
    elif pa.types.is_struct(field.type):
        yield from ((field.name, *path) for inner in field.type for path in _paths(inner))


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
