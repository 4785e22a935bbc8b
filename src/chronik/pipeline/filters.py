"""Filters on partition, offset and timestamp let a query read less; Spark applies them too."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from chronik.pipeline.client import LATEST, Cluster
from chronik.pipeline.offsets import Offsets, SourceOptions

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Bounds:
    """What a record must have so that a query can want it."""

    partitions: set[int] | None = None
    offset_min: int = 0
    offset_end: int = 1 << 62
    timestamp_ms_min: int | None = None

    def take(self, filters: Iterable[Filter]) -> None:
        """Narrows the bounds by the filters that it understands; the others change nothing."""
        for one in filters:
            if isinstance(one, EqualTo):
                self._equal(one)
            elif isinstance(one, In) and one.attribute == ("partition",):
                self._only({int(value) for value in one.value})
            elif isinstance(one, GreaterThan | GreaterThanOrEqual):
                self._above(one)
            elif isinstance(one, LessThan | LessThanOrEqual) and one.attribute == ("offset",):
                end = int(one.value) + isinstance(one, LessThanOrEqual)
                self.offset_end = min(self.offset_end, end)

    def _equal(self, one: EqualTo) -> None:
        if one.attribute == ("partition",):
            self._only({int(one.value)})
        elif one.attribute == ("offset",):
            self.offset_min = max(self.offset_min, int(one.value))
            self.offset_end = min(self.offset_end, int(one.value) + 1)

    def _above(self, one: GreaterThan | GreaterThanOrEqual) -> None:
        if one.attribute == ("offset",):
            first = int(one.value) + isinstance(one, GreaterThan)
            self.offset_min = max(self.offset_min, first)
        elif one.attribute == ("timestamp",) and isinstance(one.value, datetime.datetime):
            # Rounded down: the log counts milliseconds, Spark microseconds.
            told = int((_aware(one.value) - _EPOCH) / datetime.timedelta(milliseconds=1))
            self.timestamp_ms_min = max(self.timestamp_ms_min or 0, told)

    def _only(self, wanted: set[int]) -> None:
        self.partitions = wanted if self.partitions is None else self.partitions & wanted


def _aware(moment: datetime.datetime) -> datetime.datetime:
    return moment.astimezone(datetime.UTC)


def narrowed(
    cluster: Cluster, options: SourceOptions, bounds: Bounds, first: Offsets, last: Offsets
) -> tuple[Offsets, Offsets]:
    """The offsets to read, within the bounds."""
    wanted = bounds.partitions
    last = {one: end for one, end in last.items() if wanted is None or one[1] in wanted}
    first = {one: max(first.get(one, 0), bounds.offset_min) for one in last}
    last = {one: min(end, bounds.offset_end) for one, end in last.items()}
    if bounds.timestamp_ms_min is not None and last:
        times = dict.fromkeys(last, bounds.timestamp_ms_min)
        # Every record before that offset is earlier, whatever the order of the timestamps.
        found = cluster.offsets(times, options.isolation)
        late = dict.fromkeys((one for one, offset in found.items() if offset < 0), LATEST)
        found |= cluster.offsets(late, options.isolation) if late else {}
        first = {one: max(offset, found[one]) for one, offset in first.items()}
    return first, last
