"""Arrow's types as the tasks write them."""

from typing import Any

import pyarrow as pa


def small_types(schema: pa.Schema) -> pa.Schema:
    """pyiceberg reads strings, bytes and lists as Arrow's large ones; tasks write small ones."""
    return pa.schema([pa.field(one.name, _small(one.type)) for one in schema])


def _small(kind: Any) -> Any:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_type), _small(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _small(one.type)) for one in kind])
    return kind
