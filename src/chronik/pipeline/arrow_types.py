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


def united(known: Any, found: Any) -> Any:
    """The known type with the members that the found one has more; otherwise the known one."""
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        theirs = {one.name: one.type for one in found}
        ours = {one.name: one.type for one in known}
        kept = [(name, united(kind, theirs.get(name, kind))) for name, kind in ours.items()]
        return pa.struct(kept + [(name, theirs[name]) for name in theirs if name not in ours])
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(united(known.value_type, found.value_type))
    if pa.types.is_map(known) and pa.types.is_map(found):
        return pa.map_(known.key_type, united(known.item_type, found.item_type))
    return known


def conflict(one: Any, other: Any) -> bool:
    """True where no type holds the values of both."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        theirs = {member.name: member.type for member in other}
        return any(conflict(mine.type, theirs.get(mine.name, mine.type)) for mine in one)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return conflict(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return bool(one.key_type != other.key_type) or conflict(one.item_type, other.item_type)
    return bool(one != other)
