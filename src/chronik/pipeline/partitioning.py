"""How a table is cut into partitions: by day or hour of a record's time, or by buckets of its key.

The functions are Iceberg's partition transforms, so any engine prunes by them. They work on what
every record has; the fields of a value may come and go.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, Transform

pc: Any = pyarrow.compute
Array = Any
Key = tuple[int | None, ...]
"""The partition that a file belongs to: one value for each transform."""
_FORM = re.compile(r"(day|hour)\((\w+)\)|(bucket)\((\d+),\s*(\w+)\)")
_MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000}
BUCKETS_MAX = 10_000
COLUMNS = {"day": ("timestamp",), "hour": ("timestamp",), "bucket": ("key", "offset", "partition")}


class BadPartitioning(ValueError):  # noqa: N818
    """The text is none of the transforms."""


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """One transform of one column of the source."""

    transform: Literal["day", "hour", "bucket"]
    column: str
    buckets: int = 0

    def __str__(self) -> str:
        count = f"{self.buckets}," if self.buckets else ""
        return f"{self.transform}({count}{self.column})"

    @property
    def iceberg(self) -> Transform[Any, Any]:
        """As Iceberg knows it."""
        if self.transform == "bucket":
            return BucketTransform(self.buckets)
        return DayTransform() if self.transform == "day" else HourTransform()

    def values(self, column: Array) -> Array:
        """The partition of each row; null for null."""
        if self.transform == "bucket":
            return _buckets(column, self.buckets)
        microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        unit = _MICROSECONDS[self.transform]
        numbers = np.floor_divide(microseconds.fill_null(0).to_numpy(), unit)
        return pa.array(numbers, pa.int32(), mask=np.asarray(microseconds.is_null()))


def parse(text: str) -> tuple[PartitionBy, ...]:
    """`day(timestamp)`, `hour(timestamp)`, `bucket(16,key)`, or several with a semicolon."""
    return tuple(_parse(one.strip()) for one in text.split(";") if one.strip())


def _parse(text: str) -> PartitionBy:
    matched = _FORM.fullmatch(text)
    if matched is None:
        raise BadPartitioning(
            f"'{text}' is no partitioning: day(timestamp), hour(timestamp) or bucket(16,key)"
        )
    transform: Any = matched[1] or matched[3]
    column = matched[2] or matched[5]
    if column not in COLUMNS[transform]:
        raise BadPartitioning(f"{transform} is of {' or '.join(COLUMNS[transform])}, not {column}")
    buckets = int(matched[4] or 0)
    if transform == "bucket" and not 0 < buckets <= BUCKETS_MAX:
        raise BadPartitioning(f"1 to {BUCKETS_MAX} buckets, not {buckets}")
    return PartitionBy(transform, column, buckets)


def _buckets(column: Array, count: int) -> Array:
    """Iceberg's bucket: murmur3 of the bytes, or of an integer's eight; each value once."""
    encoded = column.dictionary_encode()
    hashes = [mmh3.hash(_hashed_bytes(one)) & 0x7FFF_FFFF for one in encoded.dictionary.to_pylist()]
    buckets = pa.array([one % count for one in hashes], pa.int32())
    return buckets.take(encoded.indices)


def _hashed_bytes(value: Any) -> bytes:
    if isinstance(value, int):
        return value.to_bytes(8, "little", signed=True)
    return bytes(value)


def pieces(batch: pa.RecordBatch, keys: list[Array]) -> list[tuple[Key, pa.RecordBatch]]:
    """The rows of each partition, in their order."""
    if not keys:
        return [((), batch)]
    names = [str(number) for number in range(len(keys))]
    table = pa.table(keys, names=names)
    found = []
    for row in table.group_by(names, use_threads=False).aggregate([]).to_pylist():
        key: Key = tuple(row[name] for name in names)
        mask: Any = None
        for column, value in zip(keys, key, strict=True):
            same = (
                column.is_null() if value is None else pc.fill_null(pc.equal(column, value), False)
            )
            mask = same if mask is None else pc.and_(mask, same)
        found.append((key, batch.filter(mask)))
    return found
