"""One shape for handlers: old versions of requests and answers against the newest."""

from typing import Any

import pytest

from chronik.wire.codec import decode, encode
from chronik.wire.messages import (
    add_partitions_to_txn,
    alter_partition,
    describe_groups,
    end_txn,
    find_coordinator,
    join_group,
    leave_group,
    list_config_resources,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    update_features,
)
from chronik.wire.versions import decode_request, encode_response


def test_fm10_offset_commit_v8_is_flexible() -> None:
    partition = offset_commit.OffsetCommitRequestPartition(1, 42, 7, "m")
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(
        "g", 3, "member", group_instance_id="static", topics=[topic]
    )
    assert decode(offset_commit.OffsetCommitRequest, 8, encode(request, 8)) == request
    assert encode(request, 8).startswith(b"\x02g\0\0\0\3\x07member\x07static\x02\x02t\x02")


def test_fm10_sync_group_v5_names_protocol_type_and_protocol() -> None:
    request = sync_group.SyncGroupRequest("g", 1, "m", protocol_type="consumer", protocol_name="r")
    for version in range(6):
        found = decode(sync_group.SyncGroupRequest, version, encode(request, version))
        names = ("consumer", "r") if version == 5 else (None, None)
        assert (found.protocol_type, found.protocol_name) == names


@pytest.mark.parametrize("version", range(1, 9))
def test_fm10_offset_fetch_is_always_seen_as_groups(version: int) -> None:
    new = offset_fetch.OffsetFetchRequestTopics("t", partition_indexes=[0, 4])
    old = offset_fetch.OffsetFetchRequestTopic("t", [0, 4])
    group = offset_fetch.OffsetFetchRequestGroup("g", topics=[new])
    request = offset_fetch.OffsetFetchRequest("g", [old], [group], True)
    data = encode(request, version)
    assert decode_request(offset_fetch.OffsetFetchRequest, version, data).groups == [group]


def test_offset_fetch_of_all_topics_is_a_null_list_in_the_group() -> None:
    request = offset_fetch.OffsetFetchRequest("g", None)
    found = decode_request(offset_fetch.OffsetFetchRequest, 5, encode(request, 5))
    assert found.groups == [offset_fetch.OffsetFetchRequestGroup("g", topics=None)]


@pytest.mark.parametrize("version", range(1, 9))
def test_fm10_offset_fetch_answers_keep_every_partition_in_every_version(version: int) -> None:
    partitions = [offset_fetch.OffsetFetchResponsePartitions(i, i * 10, 2, "m", 0) for i in (0, 1)]
    topic = offset_fetch.OffsetFetchResponseTopics("t", partitions=partitions)
    answer = offset_fetch.OffsetFetchResponse(
        groups=[offset_fetch.OffsetFetchResponseGroup("g", [topic], 16)]
    )
    data = encode_response(answer, version)
    found = decode(offset_fetch.OffsetFetchResponse, version, data)
    shown: Any = found.groups[0].topics if version >= 8 else found.topics
    assert [(p.partition_index, p.committed_offset) for p in shown[0].partitions] == [
        (0, 0),
        (1, 10),
    ]
    codes = [p.error_code for p in shown[0].partitions]
    assert codes == ([16, 16] if version == 1 else [0, 0])
    if version > 1:
        assert (found.groups[0].error_code if version >= 8 else found.error_code) == 16


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_is_always_seen_as_a_list_of_keys(version: int) -> None:
    request = find_coordinator.FindCoordinatorRequest("g", 1, ["g"])
    data = encode(request, version)
    cls = find_coordinator.FindCoordinatorRequest
    assert decode_request(cls, version, data).coordinator_keys == ["g"]
    found = find_coordinator.Coordinator("g", 3, "host", 9092)
    answer = encode_response(
        find_coordinator.FindCoordinatorResponse(coordinators=[found]), version
    )
    back = decode(find_coordinator.FindCoordinatorResponse, version, answer)
    shown = back.coordinators[0] if version >= 4 else back
    assert (shown.node_id, shown.host, shown.port) == (3, "host", 9092)


@pytest.mark.parametrize("version", range(6))
def test_leave_group_is_always_seen_as_a_list_of_members(version: int) -> None:
    members = [leave_group.MemberIdentity("m")]
    data = encode(leave_group.LeaveGroupRequest("g", "m", members), version)
    assert decode_request(leave_group.LeaveGroupRequest, version, data).members == members
    answer = leave_group.LeaveGroupResponse(members=[leave_group.MemberResponse("m", None, 25)])
    back = decode(leave_group.LeaveGroupResponse, version, encode_response(answer, version))
    assert (back.error_code if version < 3 else back.members[0].error_code) == 25


@pytest.mark.parametrize("version", range(6))
def test_add_partitions_to_txn_is_always_seen_as_transactions(version: int) -> None:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic("t", [1])]
    wanted = add_partitions_to_txn.AddPartitionsToTxnTransaction("x", 5, 2, False, topics)
    request = add_partitions_to_txn.AddPartitionsToTxnRequest("x", 5, 2, topics, [wanted])
    cls = add_partitions_to_txn.AddPartitionsToTxnRequest
    assert decode_request(cls, version, encode(request, version)).transactions == [wanted]
    result = add_partitions_to_txn.AddPartitionsToTxnPartitionResult(1, 90)
    topic = add_partitions_to_txn.AddPartitionsToTxnTopicResult("t", [result])
    answer = add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_transaction=[add_partitions_to_txn.AddPartitionsToTxnResult("x", [topic])]
    )
    back = decode(type(answer), version, encode_response(answer, version))
    shown = (
        back.results_by_transaction[0].topic_results
        if version >= 4
        else back.results_by_topic_v3_and_below
    )
    # Before KIP-588 a fenced producer is told that its epoch is invalid.
    assert shown[0].results_by_partition[0].partition_error_code == (90 if version >= 2 else 47)


def test_small_version_differences_are_evened_out() -> None:
    assert decode_request(metadata.MetadataRequest, 0, bytes(4)).topics is None
    assert decode_request(metadata.MetadataRequest, 1, bytes(4)).topics == []
    join = encode(join_group.JoinGroupRequest("g", 6000), 0)
    assert decode_request(join_group.JoinGroupRequest, 0, join).rebalance_timeout_ms == 6000
    part = alter_partition.RequestPartitionData(new_isr=[1, 2])
    topic = alter_partition.RequestTopicData(partitions=[part])
    alter = encode(alter_partition.AlterPartitionRequest(topics=[topic]), 2)
    seen = decode_request(alter_partition.AlterPartitionRequest, 2, alter).topics[0].partitions[0]
    assert [state.broker_id for state in seen.new_isr_with_epochs] == [1, 2]
    update = update_features.FeatureUpdateKey("f", 1, allow_downgrade=True)
    features = encode(update_features.UpdateFeaturesRequest(feature_updates=[update]), 0)
    found = decode_request(update_features.UpdateFeaturesRequest, 0, features)
    assert found.feature_updates[0].upgrade_type == 2
    cls = list_config_resources.ListConfigResourcesRequest
    assert decode_request(cls, 0, b"\0").resource_types == [16]


def test_old_clients_get_the_error_codes_they_know() -> None:
    dead = describe_groups.DescribeGroupsResponse(groups=[describe_groups.DescribedGroup(69)])
    new = decode(type(dead), 6, encode_response(dead, 6)).groups[0]
    old = decode(type(dead), 5, encode_response(dead, 5)).groups[0]
    assert (new.error_code, old.error_code, old.group_state) == (69, 0, "Dead")
    fenced = end_txn.EndTxnResponse(error_code=90)
    assert decode(type(fenced), 2, encode_response(fenced, 2)).error_code == 90
    assert decode(type(fenced), 1, encode_response(fenced, 1)).error_code == 47
    partition = txn_offset_commit.TxnOffsetCommitResponsePartition(0, 14)
    topic = txn_offset_commit.TxnOffsetCommitResponseTopic("t", [partition])
    loading = txn_offset_commit.TxnOffsetCommitResponse(topics=[topic])
    back = decode(type(loading), 1, encode_response(loading, 1))
    assert back.topics[0].partitions[0].error_code == 15
