"""DescribeLogDirs (35), versions 1-5: what lies on this node's disk (KIP-113, KIP-827)."""

import os
import shutil

from chronik.broker.broker import Broker
from chronik.broker.partition import Partition
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(
    broker: Broker, _call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """One directory, with the partitions asked for or all of them."""
    result = DescribeLogDirsResult(log_dir=_log_dir(broker))
    try:
        usage = await broker.disk.run(lambda: shutil.disk_usage(broker.settings.data_dir))
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _wanted(broker, request):
        topics.setdefault(partition.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.log.size,
                offset_lag=partition.state.log_end - partition.state.high_watermark,
            )
        )
    result.topics = [
        DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in topics.items()
    ]
    return DescribeLogDirsResponse(results=[result])


def _log_dir(broker: Broker) -> str:
    return os.path.abspath(broker.settings.data_dir)  # as Kafka names it


def _wanted(broker: Broker, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(broker.partitions)
    found = (
        broker.partitions.by_name(topic.topic, index)
        for topic in request.topics
        for index in topic.partitions
    )
    return [partition for partition in found if partition is not None]
