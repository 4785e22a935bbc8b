"""Which offsets the next commit takes: planned from what the table has committed."""

from collections.abc import Mapping

from chronik.pipeline.client import EARLIEST, LATEST, Cluster, TopicPartition
from chronik.pipeline.fetch import DataLoss, OffsetRange
from chronik.pipeline.warehouse import State


class IngestError(Exception):
    """The topic and its table do not fit together."""


def ends(cluster: Cluster, topic: str, isolation: int) -> dict[TopicPartition, int]:
    """Where the topic ends now."""
    partitions = cluster.partitions([topic])
    return cluster.offsets(dict.fromkeys(partitions, LATEST), isolation)


def left(cluster: Cluster, state: State, topic: str, target: Mapping[TopicPartition, int]) -> int:
    """The offsets between the table's and the target, as they would be planned."""
    whole = plan(cluster, state, topic, target, len(target) * max(1, *target.values()))
    return sum(one.end - one.start for one in whole)


def plan(
    cluster: Cluster,
    state: State,
    topic: str,
    target: Mapping[TopicPartition, int],
    records_max: int,
) -> list[OffsetRange]:
    """At most about `records_max` offsets, a fair share of each partition that has more.

    A partition that is still empty is in the first plan too, with an empty range: from then on a
    record of it that is deleted before it was ingested is noticed.
    """
    starts = cluster.offsets(dict.fromkeys(target, EARLIEST))
    ranges = []
    for (_, partition), end in sorted(target.items()):
        start = state.next.get(partition, starts[topic, partition])
        _check_log(topic, partition, start, starts[topic, partition], end)
        ranges.append(OffsetRange(topic, partition, start, end))
    busy = [one for one in ranges if one.end > one.start]
    if not busy:
        return []
    share = max(1, records_max // len(busy))
    return [
        OffsetRange(topic, one.partition, one.start, min(one.end, one.start + share))
        for one in ranges
        if one.end > one.start or one.partition not in state.next
    ]


def _check_log(topic: str, partition: int, start: int, log_start: int, end: int) -> None:
    if start < log_start:
        raise DataLoss(
            f"{topic}-{partition}: the table ends at offset {start}, the log begins at {log_start}:"
            " records were deleted before they were ingested"
        )
    if start > end:
        raise IngestError(
            f"{topic}-{partition}: the table ends at offset {start}, the log already at {end}. "
            "The topic was made again, or it lost records; an offset is never taken back"
        )
