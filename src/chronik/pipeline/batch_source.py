"""Batch reads: the offsets are fixed when the query is planned; one range is one task."""

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from chronik.pipeline.client import EARLIEST, Cluster
from chronik.pipeline.fetch import DataLoss, OffsetRange, read_range
from chronik.pipeline.filters import Bounds, narrowed
from chronik.pipeline.offsets import (
    BadOption,
    Offsets,
    SourceOptions,
    ending,
    split,
    starting,
)


class RangePartition(InputPartition):
    """One offset range is one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class ChronikReader(DataSourceReader):
    """A batch read: the offsets are fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        for bound, bad in ((options.starting, "latest"), (options.ending, "earliest")):
            if bound is not None and bound[1] == bad:
                raise BadOption(f"a batch read cannot use '{bad}' there: it would read nothing")
        self._options = options
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._bounds.take(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with Cluster(options.bootstrap) as cluster:
            first = kept(cluster, options, starting(cluster, options, "earliest"))
            last = ending(cluster, options)
            first, last = narrowed(cluster, options, self._bounds, first, last)
        return planned(first, last, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)


def planned(first: Offsets, last: Offsets, options: SourceOptions) -> Sequence[InputPartition]:
    """The tasks between two offsets per partition."""
    ranges = [OffsetRange(*one, first.get(one, 0), end) for one, end in sorted(last.items())]
    cut = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(one) for one in cut]


def kept(cluster: Cluster, options: SourceOptions, first: Offsets) -> Offsets:
    """The offsets, moved up to the log's start where that is later; an error by default."""
    starts = cluster.offsets(dict.fromkeys(first, EARLIEST))
    lost = {one: offset for one, offset in first.items() if offset < starts[one]}
    if lost and options.fail_on_data_loss:
        (topic, partition), offset = next(iter(lost.items()))
        raise DataLoss(
            f"{topic}-{partition} begins at offset {starts[topic, partition]}, the read at "
            f"{offset}: records are gone. Set failOnDataLoss to false to go on without them"
        )
    return {one: max(offset, starts[one]) for one, offset in first.items()}


def read_partition(options: SourceOptions, partition: Any) -> Iterator[pa.RecordBatch]:
    """The task's work: Arrow batches, never rows."""
    if not isinstance(partition, RangePartition):
        # Where nothing is to be read Spark makes one task up, with a partition of its own.
        return iter(())
    _freeze()
    return read_range(
        options.bootstrap,
        partition.wanted,
        columns=options.columns,
        isolation=options.isolation,
        segments=options.segments,
        fail_on_data_loss=options.fail_on_data_loss,
    )


@cache
def _freeze() -> None:
    """Spark's workers collect garbage after every task: not among the modules, which stay."""
    if getattr(sys.modules["__main__"].__spec__, "name", "") == "pyspark.daemon":
        gc.freeze()
