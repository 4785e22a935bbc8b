"""Single rows to Arrow record batches, for the few events that do not come from a queue.

`columns.py` has those of a queue. Both load pyarrow.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from chronik.trace.events import Row
from chronik.trace.schema import arrow_schema


@cache
def _types() -> tuple[Any, ...]:
    return tuple(field.type for field in arrow_schema())


def to_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """All rows, or an exception of pyarrow's for a value that does not fit its column."""
    types = _types()
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())
