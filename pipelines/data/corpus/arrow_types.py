"""Types of Arrow that aren't carried as they are, in columns and inside of lists and structs."""

from collections.abc import Callable

import pyarrow as pa


def without_views(schema: pa.Schema) -> pa.Schema:
    """The columns of a Parquet file with text and bytes in place of views, of which Arrow takes or filters no rows."""
    return pa.schema([field.with_type(replaced(field.type, _without_view)) for field in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def replaced(kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with others in place of those that hold no further ones. Columns can be cast to it."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(replaced(field.type, replace)) for field in kind])
    if types.is_map(kind):
        return pa.map_(replaced(kind.key_type, replace), replaced(kind.item_type, replace))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = kind.value_field.with_type(replaced(kind.value_type, replace))
        if types.is_fixed_size_list(kind):
            return pa.list_(value, kind.list_size)
        return pa.large_list(value) if types.is_large_list(kind) else pa.list_(value)
    return replace(kind)
