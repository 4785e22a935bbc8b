"""Rows to Arrow record batches. This is the module that loads pyarrow."""

import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from chronik.trace.events import Row
from chronik.trace.schema import arrow_schema

GIL_PAUSE_S = 0.00002
"""A pause after some values: the event loop waits for the GIL that long, and not for 5 ms."""
PAUSE_VALUES = 4_096
"""So many are converted in a sixth of a millisecond; more pauses cost more than the values do."""


@cache
def _types() -> tuple[Any, ...]:
    return tuple(field.type for field in arrow_schema())


def to_batch(rows: Sequence[Row], pause_s: float = 0.0) -> pa.RecordBatch:
    """All rows, or an exception of pyarrow's for a value that does not fit its column."""
    types = _types()
    columns: Iterable[tuple[int | str | None, ...]]
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    nothing = (None,) * len(rows)
    arrays, since_pause = [], 0
    for type_, values in zip(types, columns, strict=True):
        if values == nothing:  # as most columns of most kinds: told by its first value otherwise
            arrays.append(pa.nulls(len(values), type_))
            continue
        if pause_s and since_pause >= PAUSE_VALUES:
            time.sleep(pause_s)
            since_pause = 0
        arrays.append(pa.array(values, type=type_))
        since_pause += len(values)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())


def fits(row: Row) -> bool:
    """False for a row that no batch can hold, such as text with a lone surrogate."""
    try:
        to_batch([row])
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True
