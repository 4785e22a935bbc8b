"""The one list of what this node serves. What is not in it is not advertised."""

from functools import partial

from chronik.handlers import (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    end_quorum_epoch,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    unregister_broker,
)
from chronik.handlers.api import Api
from chronik.wire.apis import ApiKey
from chronik.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from chronik.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from chronik.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from chronik.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from chronik.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from chronik.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from chronik.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from chronik.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from chronik.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from chronik.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from chronik.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from chronik.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from chronik.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from chronik.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from chronik.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from chronik.wire.messages.fetch import FetchRequest, FetchResponse
from chronik.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from chronik.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from chronik.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from chronik.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from chronik.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from chronik.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from chronik.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from chronik.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from chronik.wire.messages.metadata import MetadataRequest, MetadataResponse
from chronik.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from chronik.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from chronik.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from chronik.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from chronik.wire.messages.produce import ProduceRequest, ProduceResponse
from chronik.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from chronik.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from chronik.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_APIS: list[Api] = [
    Api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse, fast=produce.serve),
    Api(ApiKey.FETCH, FetchRequest, FetchResponse, fast=fetch.serve, patient=True),
    Api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, list_offsets.handle),
    Api(ApiKey.METADATA, MetadataRequest, MetadataResponse, metadata.handle),
    Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, offset_commit.handle),
    Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, offset_fetch.handle),
    Api(
        ApiKey.FIND_COORDINATOR,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        find_coordinator.handle,
    ),
    Api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, join_group.handle),
    Api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, heartbeat.handle),
    Api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, leave_group.handle),
    Api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, sync_group.handle),
    Api(
        ApiKey.DESCRIBE_GROUPS,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        describe_groups.handle,
    ),
    Api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, list_groups.handle),
    Api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, delete_groups.handle),
    Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, offset_delete.handle),
    Api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, create_topics.handle),
    Api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, delete_topics.handle),
    Api(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse, delete_records.handle),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id.handle,
    ),
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        offset_for_leader_epoch.handle,
    ),
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        describe_configs.handle,
    ),
    Api(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse, alter_configs.handle),
    Api(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        alter_replica_log_dirs.handle,
    ),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        describe_log_dirs.handle,
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        create_partitions.handle,
    ),
    Api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        incremental_alter_configs.handle,
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        DescribeClusterRequest,
        DescribeClusterResponse,
        describe_cluster.handle,
    ),
    Api(
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest,
        DescribeProducersResponse,
        describe_producers.handle,
    ),
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        describe_topic_partitions.handle,
    ),
    Api(ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, elect_leaders.handle),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        alter_partition_reassignments.handle,
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        list_partition_reassignments.handle,
    ),
    Api(
        ApiKey.DESCRIBE_QUORUM,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        describe_quorum.handle,
    ),
    Api(
        ApiKey.END_QUORUM_EPOCH,
        EndQuorumEpochRequest,
        EndQuorumEpochResponse,
        end_quorum_epoch.handle,
    ),
    Api(
        ApiKey.ADD_RAFT_VOTER,
        AddRaftVoterRequest,
        AddRaftVoterResponse,
        add_raft_voter.handle,
    ),
    Api(
        ApiKey.REMOVE_RAFT_VOTER,
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
        remove_raft_voter.handle,
    ),
    Api(
        ApiKey.UNREGISTER_BROKER,
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
        unregister_broker.handle,
    ),
    Api(
        ApiKey.LIST_CONFIG_RESOURCES,
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        list_config_resources.handle,
    ),
]
_APIS.append(
    Api(
        ApiKey.API_VERSIONS,
        ApiVersionsRequest,
        ApiVersionsResponse,
        partial(api_versions.handle, table=_APIS),  # it lists itself too
    )
)
TABLE: dict[int, Api] = {api.key: api for api in sorted(_APIS, key=lambda api: api.key)}
