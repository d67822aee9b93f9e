"""The columns that are carried over from the input: their types where files differ, and values that don't fit them."""

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines.data.corpus.corpus_files import FileKind, InputFile, is_utf8
from pipelines.data.corpus.opened_files import opened
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import RECORD, RESERVED


def carried_columns(
    files: Sequence[InputFile],
    sample: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, pa.Schema] = MappingProxyType({}),
    earlier: pa.Schema | None = None,
    read: Collection[str] = (),
) -> pa.Schema:
    """The carried columns: all columns of Parquet files, or the raw record and the scalar fields of JSON rows.

    `schemas` are the columns of Parquet files by path. Of the others the columns are in `earlier`, the carried columns of
    the earlier session that knew them; without it they are opened. `read` are columns that prompt and responses are read
    from, also when the parts are read back.
    Raises `SourceError` if the input mixes both, or if Parquet files have types for one of `read` that don't go together.
    """
    # Reversed, so that of each kind the first file is the one that is named.
    first_files = {file.kind is FileKind.PARQUET: file.path for file in reversed(files)}
    if len(first_files) > 1:
        raise SourceError(
            f"the input mixes Parquet with JSON files, such as {first_files[True]} and {first_files[False]}; leave out one "
            "kind, or score them into two folders"
        )
    if True in first_files:
        return _unified_schema(files, schemas, earlier, read)
    return pa.schema([(RECORD, pa.large_binary()), *_flat_scalars(sample)])


def _unified_schema(
    files: Sequence[InputFile], schemas: Mapping[str, pa.Schema], earlier: pa.Schema | None, read: Collection[str]
) -> pa.Schema:
    first_files: dict[str, dict[pa.DataType, str]] = {}  # of each column and type
    unified_ids: set[int] = set()  # of schemas that the caller holds, so that no other gets the same id
    for file in files:
        held_schema = schemas.get(file.path, earlier)
        if id(held_schema) in unified_ids:  # a million files share a few schemas
            continue
        for field in _parquet_columns(file, held_schema):
            first_files.setdefault(field.name, {}).setdefault(field.type, file.path)
        if held_schema is not None:
            unified_ids.add(id(held_schema))
    schema = pa.schema([(name, unified_type(list(paths))) for name, paths in first_files.items()])
    for name in filter(first_files.__contains__, read):
        paths = first_files[name]
        if not all(_holds(schema.field(name).type, kind) for kind in paths):
            held = " and ".join(f"{kind} in {path}" for kind, path in paths.items())
            raise SourceError(f"the column {name!r}, from which rows are read, is {held}; give it one type in all files")
    return schema


def unified_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The type of a column of several: theirs, or the next wider one; text where there is none.

    A dictionary counts as its values, and a large string as a string: these store the same values in another way.
    """
    # Arrow's `default` joins equal types, nulls and the fields of structs; `permissive` also widens numbers.
    for all_kinds, promote in ((kinds, "default"), ([_plain(kind) for kind in kinds], "permissive")):
        try:
            return pa.unify_schemas([pa.schema([("", kind)]) for kind in all_kinds], promote_options=promote).field(0).type
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
    return pa.string()


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _holds(kind: pa.DataType, other: pa.DataType) -> bool:
    # Whether all values of type `other` stay what they are in a column of type `kind`. The width of numbers isn't compared:
    # `kind` is what the types were unified to, so it is the widest.
    kind, other = _plain(kind), _plain(other)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        return all(_holds(kind.field(field.name).type, field.type) for field in other)
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return _holds(kind.value_type, other.value_type)
    is_equal = kind == other or pa.types.is_null(other)
    return is_equal or any(is_a(kind) and is_a(other) for is_a in (pa.types.is_integer, pa.types.is_floating))


def carried_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column as one of another type, to which it was unified: as text where that is it; what doesn't fit is null."""
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        values = [row[""] for row in python_rows(pa.table({"": column}), None)]
    if pa.types.is_string(kind):
        return pa.array([None if value is None else _text_of(value) for value in values], kind)
    return pa.array([value if _storable(value, kind) else None for value in values], kind)


def _text_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def types_text(schemas: Iterable[pa.Schema], carried: pa.Schema) -> str:
    """A sentence on the columns whose types differ by file so that one doesn't hold the values of all; empty if none do.

    For the notes that a run begins with. `schemas` are those of the files, `carried` is what they were unified to.
    """
    kinds_by_name: dict[str, dict[pa.DataType, None]] = {}
    for field in itertools.chain.from_iterable({id(schema): schema for schema in schemas}.values()):
        kinds_by_name.setdefault(field.name, {})[field.type] = None
    shown = [
        f"{name!a} ({', '.join(map(str, kinds))}: as {carried.field(name).type})"
        for name, kinds in kinds_by_name.items()
        if name in carried.names and not all(_holds(carried.field(name).type, kind) for kind in kinds)
    ]
    if not shown:
        return ""
    return f"Of several types in the files: {', '.join(shown)}. What doesn't fit, as an integer beyond 2**53, is null there"


def check_carried(carried: pa.Schema, files: Sequence[InputFile]) -> None:
    """Raise `SourceError` for a Parquet file with a column that doesn't fit the type of the carried column of its name.

    A column of nulls fits, a struct that lacks fields and a narrower number. A column that isn't carried isn't checked here.
    """
    for file in files:
        for field in _parquet_columns(file):
            if field.name in carried.names and not _takes(carried.field(field.name).type, field.type):
                raise SourceError(
                    f"{file.path} has the column {field.name!r} as {field.type}, and the run that it is appended to has it "
                    f"as {carried.field(field.name).type}; convert the file, or score it into a new folder"
                )


def _takes(kind: pa.DataType, other: pa.DataType) -> bool:
    # Whether a column of type `kind` takes values of type `other` as it is: text would take everything, but as other values.
    return bool(_plain(unified_type([kind, other])) == _plain(kind)) and not (
        pa.types.is_string(kind) and not _holds(kind, other)
    )


def _parquet_columns(file: InputFile, schema: pa.Schema | None = None) -> pa.Schema:
    """The columns of a Parquet file, which is opened unless its schema is given. Raises `SourceError` for wrong names."""
    if schema is None:
        with opened(file) as stream:
            schema = pq.read_schema(stream)
    # Such as what pandas leaves there, which differs between files of equal columns.
    schema = schema.remove_metadata()
    if repeated := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise SourceError(f"{file.path} has more than one column {repeated[0]!r}; rename all but one")
    if clashes := sorted(RESERVED.intersection(schema.names)):
        raise SourceError(
            f"{file.path} has a column {clashes[0]!r}, a name that Assay needs while it works; rename it there"
        )
    if RECORD not in schema.names:
        return schema
    # Only the raw record of JSON rows is a large binary of this name (`is_json`).
    index = schema.get_field_index(RECORD)
    field = schema.field(index)
    return schema.set(index, field.with_type(pa.binary())) if pa.types.is_large_binary(field.type) else schema


def _flat_scalars(sample: Sequence[Mapping[str, Any]]) -> list[pa.Field]:
    types_by_name: dict[str, set[type]] = {}
    for row in sample:
        for name, value in row.items():
            types_by_name.setdefault(name, set()).update([type(value)] if value is not None else [])
    typed = ((name, _arrow_type(types)) for name, types in types_by_name.items())
    excluded = {RECORD} | RESERVED
    return [pa.field(name, kind) for name, kind in typed if kind is not None and name not in excluded and is_utf8(name)]


def _arrow_type(types: set[type]) -> pa.DataType | None:
    """The column type for values of these types; None for nested, mixed or only null values, which stay in the record."""
    if types <= {int, float} and float in types:
        return pa.float64()
    return {bool: pa.bool_(), int: pa.int64(), str: pa.string()}.get(next(iter(types))) if len(types) == 1 else None


def scalar_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of a given type; a value that doesn't fit is null here, and only in the raw record."""
    # The type check alone passes integers beyond 64 bits and lone surrogates. They are rare, so each value is tried alone
    # only if the whole column fails.
    try:
        return pa.array([value if _fits(value, kind) else None for value in values], kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return pa.array([value if _fits(value, kind) and _storable(value, kind) else None for value in values], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    # `type(...)` and not `isinstance`: a bool is an int in Python, and must not become 1 in a column of numbers.
    if pa.types.is_floating(kind):
        return type(value) in (int, float)
    return type(value) is {pa.bool_(): bool, pa.int64(): int, pa.string(): str}[kind]


def _storable(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return False
    return True
