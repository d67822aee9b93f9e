"""Types of Arrow that aren't carried as they are, in columns and inside of lists and structs."""

import pyarrow as pa


def without_views(schema: pa.Schema) -> pa.Schema:
    """The columns of a Parquet file with text and bytes in place of views.

    A file says in its metadata that its writer had views. Arrow 26 neither takes nor filters rows of them, as filters and
    shuffles do.
    """
    return pa.schema([field.with_type(_without_view(field.type)) for field in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_view(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_without_view(kind.key_type), _without_view(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = kind.value_field.with_type(_without_view(kind.value_type))
        if types.is_fixed_size_list(kind):
            return pa.list_(value, kind.list_size)
        return pa.large_list(value) if types.is_large_list(kind) else pa.list_(value)
    return kind
