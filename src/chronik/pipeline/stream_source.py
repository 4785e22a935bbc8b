"""`spark.readStream.format("chronik")`: micro-batches, with admission control and availableNow.

An offset of the stream is {"topic": {"0": 17}}: the offset that is read next, per partition.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from chronik.pipeline.batch_source import kept, planned, read_partition
from chronik.pipeline.client import EARLIEST, LATEST, Cluster
from chronik.pipeline.offsets import (
    Offsets,
    SourceOptions,
    from_json,
    starting,
    subscribed,
    to_json,
)


class ChronikStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream; its state is the end that availableNow was promised, and when it last moved."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Offsets | None = None
        self._advanced_at_s = time.perf_counter()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with Cluster(self._options.bootstrap) as cluster:
            return to_json(kept(cluster, self._options, starting(cluster, self._options, "latest")))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = self._with_new_partitions(from_json(start))
        end = self._ends() if self._target is None else self._target
        end = {one: max(offset, begin.get(one, 0)) for one, offset in end.items()}
        if self._target is None and self._waits(begin, end):
            return to_json(begin)
        self._advanced_at_s = time.perf_counter()
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_json(begin | end)

    def _waits(self, begin: Offsets, end: Offsets) -> bool:
        """Is there less than minOffsetsPerTrigger, and maxTriggerDelay not over yet?"""
        least = self._options.min_offsets_per_trigger
        if least is None or lag(begin, end) >= least:
            return False
        return time.perf_counter() - self._advanced_at_s < self._options.max_trigger_delay_s

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_json(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, last = from_json(start), from_json(end)
        with Cluster(self._options.bootstrap) as cluster:
            begin = self._started(cluster, begin, last)
            begin = kept(cluster, self._options, begin)
        return planned(begin, last, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def _ends(self) -> Offsets:
        with Cluster(self._options.bootstrap) as cluster:
            wanted = dict.fromkeys(subscribed(cluster, self._options), LATEST)
            return cluster.offsets(wanted, self._options.isolation)

    def _with_new_partitions(self, begin: Offsets) -> Offsets:
        with Cluster(self._options.bootstrap) as cluster:
            now = dict.fromkeys(subscribed(cluster, self._options), 0)
            return self._started(cluster, begin, now)

    def _started(self, cluster: Cluster, begin: Offsets, last: Mapping[Any, int]) -> Offsets:
        """A partition that was not there before begins at its first record."""
        new = dict.fromkeys((one for one in last if one not in begin), EARLIEST)
        return begin | (cluster.offsets(new) if new else {})


def lag(begin: Offsets, end: Offsets) -> int:
    """Offsets between the two."""
    return sum(max(0, offset - begin.get(one, 0)) for one, offset in end.items())


def limited(begin: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """The end moved back so that about `rows_max` offsets are read, in proportion to the lag."""
    lags = {one: offset - begin.get(one, 0) for one, offset in end.items()}
    total = sum(lags.values())
    if total <= rows_max:
        return end
    return {
        # Rounded up: a partition with a small lag must not starve.
        one: begin.get(one, 0) + min(size, -(-rows_max * size // total))
        for one, size in lags.items()
    }
