"""Version differences beyond a field present or not: handlers see the newest shape only.

A request of an old shape is read into the fields of the new one; an answer gets the fields of the
old shape in addition, and the codec drops those that the version lacks. One function per
difference, two tables that name them all.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from chronik.model.errors import ErrorCode
from chronik.wire.codec import decode, encode
from chronik.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_partition,
    delete_topics,
    describe_groups,
    end_txn,
    find_coordinator,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    metadata,
    offset_fetch,
    txn_offset_commit,
    update_features,
)
from chronik.wire.primitives import Buffer
from chronik.wire.schema import Message

M = TypeVar("M", bound=Message)

CLIENT_METRICS_RESOURCE: Final = 16
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2


def decode_request(cls: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """The request in its newest shape, whatever version the bytes have."""
    message = decode(cls, version, data, position)
    rule = _REQUESTS.get(cls)
    if rule is not None and version < rule[0]:
        rule[1](message)
    return message


def encode_response(message: Message, version: int) -> bytes:
    """The bytes of an answer that was built in its newest shape."""
    rule = _RESPONSES.get(type(message))
    if rule is not None and version < rule[0]:
        rule[1](message, version)
    return encode(message, version)


def _metadata_of_all(request: metadata.MetadataRequest) -> None:
    # Version 0 has no null: an empty list asks for all topics.
    if not request.topics:
        request.topics = None


def _offset_fetch(request: offset_fetch.OffsetFetchRequest) -> None:
    topics = None
    if request.topics is not None:
        topics = [
            offset_fetch.OffsetFetchRequestTopics(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in request.topics
        ]
    request.groups = [
        offset_fetch.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    ]


def _find_coordinator(request: find_coordinator.FindCoordinatorRequest) -> None:
    request.coordinator_keys = [request.key]


def _join_group(request: join_group.JoinGroupRequest) -> None:
    # Version 0 has one timeout for both.
    request.rebalance_timeout_ms = request.session_timeout_ms


def _leave_group(request: leave_group.LeaveGroupRequest) -> None:
    request.members = [leave_group.MemberIdentity(member_id=request.member_id)]


def _delete_topics(request: delete_topics.DeleteTopicsRequest) -> None:
    request.topics = [delete_topics.DeleteTopicState(name=name) for name in request.topic_names]


def _add_partitions(request: add_partitions_to_txn.AddPartitionsToTxnRequest) -> None:
    request.transactions = [
        add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _alter_partition(request: alter_partition.AlterPartitionRequest) -> None:
    for topic in request.topics:
        for partition in topic.partitions:
            partition.new_isr_with_epochs = [
                alter_partition.BrokerState(broker_id=broker) for broker in partition.new_isr
            ]


def _update_features(request: update_features.UpdateFeaturesRequest) -> None:
    for update in request.feature_updates:
        update.upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE


def _list_config_resources(request: list_config_resources.ListConfigResourcesRequest) -> None:
    # Version 0 knows one kind of resource (KIP-1142).
    request.resource_types = [CLIENT_METRICS_RESOURCE]


def _offset_fetch_answer(response: offset_fetch.OffsetFetchResponse, version: int) -> None:
    (group,) = response.groups
    response.error_code = group.error_code
    response.topics = [
        offset_fetch.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[_old_partition(partition) for partition in topic.partitions],
        )
        for topic in group.topics
    ]
    if version < 2 and group.error_code:
        # Version 1 has no place for the group's error but the partitions.
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = group.error_code


def _old_partition(
    partition: offset_fetch.OffsetFetchResponsePartitions,
) -> offset_fetch.OffsetFetchResponsePartition:
    return offset_fetch.OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _find_coordinator_answer(
    response: find_coordinator.FindCoordinatorResponse, version: int
) -> None:
    (found,) = response.coordinators
    response.error_code = found.error_code
    response.error_message = found.error_message
    response.node_id = found.node_id
    response.host = found.host
    response.port = found.port


def _leave_group_answer(response: leave_group.LeaveGroupResponse, version: int) -> None:
    if response.error_code == ErrorCode.NONE and response.members:
        response.error_code = response.members[0].error_code


def _describe_groups_answer(response: describe_groups.DescribeGroupsResponse, version: int) -> None:
    # Before version 6 an unknown group is a dead one, not an error (KIP-1043).
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            group.error_code = ErrorCode.NONE
            group.group_state = "Dead"


def _add_partitions_answer(
    response: add_partitions_to_txn.AddPartitionsToTxnResponse, version: int
) -> None:
    topics = (
        response.results_by_transaction[0].topic_results if response.results_by_transaction else []
    )
    response.results_by_topic_v3_and_below = topics
    if version < 2:
        for topic in topics:
            for partition in topic.results_by_partition:
                partition.partition_error_code = _before_fenced(partition.partition_error_code)


def _fenced_answer(
    response: init_producer_id.InitProducerIdResponse
    | add_offsets_to_txn.AddOffsetsToTxnResponse
    | end_txn.EndTxnResponse,
    version: int,
) -> None:
    response.error_code = _before_fenced(response.error_code)


def _before_fenced(error_code: int) -> int:
    # Clients before KIP-588 do not know PRODUCER_FENCED.
    fenced = error_code == ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error_code


def _txn_offset_commit_answer(
    response: txn_offset_commit.TxnOffsetCommitResponse, version: int
) -> None:
    # Old producers fail for good on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


_REQUESTS: Final[dict[type[Message], tuple[int, Callable[[Any], None]]]] = {
    metadata.MetadataRequest: (1, _metadata_of_all),
    offset_fetch.OffsetFetchRequest: (8, _offset_fetch),
    find_coordinator.FindCoordinatorRequest: (4, _find_coordinator),
    join_group.JoinGroupRequest: (1, _join_group),
    leave_group.LeaveGroupRequest: (3, _leave_group),
    delete_topics.DeleteTopicsRequest: (6, _delete_topics),
    add_partitions_to_txn.AddPartitionsToTxnRequest: (4, _add_partitions),
    alter_partition.AlterPartitionRequest: (3, _alter_partition),
    update_features.UpdateFeaturesRequest: (1, _update_features),
    list_config_resources.ListConfigResourcesRequest: (1, _list_config_resources),
}
"""First version of the new shape, and what brings older ones to it."""

_RESPONSES: Final[dict[type[Message], tuple[int, Callable[[Any, int], None]]]] = {
    offset_fetch.OffsetFetchResponse: (8, _offset_fetch_answer),
    find_coordinator.FindCoordinatorResponse: (4, _find_coordinator_answer),
    leave_group.LeaveGroupResponse: (3, _leave_group_answer),
    describe_groups.DescribeGroupsResponse: (6, _describe_groups_answer),
    add_partitions_to_txn.AddPartitionsToTxnResponse: (4, _add_partitions_answer),
    init_producer_id.InitProducerIdResponse: (4, _fenced_answer),
    add_offsets_to_txn.AddOffsetsToTxnResponse: (2, _fenced_answer),
    end_txn.EndTxnResponse: (2, _fenced_answer),
    txn_offset_commit.TxnOffsetCommitResponse: (2, _txn_offset_commit_answer),
}
"""First version of the new shape, and what fills the fields of the old one."""
