"""Rows to Arrow record batches. This is the module that loads pyarrow."""

import contextlib
import struct
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from chronik.trace.events import Row
from chronik.trace.schema import COLUMNS, arrow_schema

_PACKED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "string": ""}
_CODES = tuple(_PACKED[type_name] for _, type_name in COLUMNS)
GIL_PAUSE_S = 0.00002
"""A pause after some values: the event loop waits for the GIL that long, and not for 5 ms."""
PAUSE_VALUES = 16_384
"""So many are converted in about half a millisecond, which is a node's switch interval; a pause
costs as much as some hundred values."""


Values = tuple[int | str | None, ...]


@cache
def _types() -> tuple[Any, ...]:
    return tuple(field.type for field in arrow_schema())


def to_batch(rows: Sequence[Row], pause_s: float = 0.0) -> pa.RecordBatch:
    """All rows, or an exception of pyarrow's for a value that does not fit its column."""
    types = _types()
    columns: Iterable[Values] = zip(*rows, strict=True) if rows else [()] * len(types)
    nothing = (None,) * len(rows)
    arrays, since_pause = [], 0
    for type_, code, values in zip(types, _CODES, columns, strict=True):
        if values == nothing:  # as most columns of most kinds: told by its first value otherwise
            arrays.append(pa.nulls(len(values), type_))
            continue
        if pause_s and since_pause >= PAUSE_VALUES:
            time.sleep(pause_s)
            since_pause = 0
        arrays.append(_column(values, type_, code))
        since_pause += len(values)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())


def _column(values: Values, type_: Any, code: str) -> Any:
    """Numbers without a null are packed at a quarter of what Arrow's own conversion costs."""
    first = values[0]
    if code and first is not None:
        with contextlib.suppress(struct.error):  # a null, or what Arrow will complain about
            packed = struct.pack(f"{len(values)}{code}", *values)
            return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(packed)])
    if not code and values == (first,) * len(values):
        return pa.repeat(pa.scalar(first, type_), len(values))  # one topic, one client
    return pa.array(values, type=type_)


def fits(row: Row) -> bool:
    """False for a row that no batch can hold, such as text with a lone surrogate."""
    try:
        to_batch([row])
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True
