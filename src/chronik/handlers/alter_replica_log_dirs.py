"""AlterReplicaLogDirs (34), versions 1-2: moves a replica between disks (KIP-113). A node has one
directory: a move to it is done already, any other is not found.
"""

import os

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    broker: Broker, _call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """One answer per partition; of two directories for one the last counts."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(
                dict.fromkeys(topic.partitions, directory.path)
            )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(index, _outcome(broker, name, index, path))
                    for index, path in paths.items()
                ],
            )
            for name, paths in wanted.items()
        ]
    )


def _outcome(broker: Broker, topic: str, index: int, path: str) -> ErrorCode:
    if path != os.path.abspath(broker.settings.data_dir):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.controller.image.partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.partitions.by_name(topic, index) is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
