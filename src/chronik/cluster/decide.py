"""`decide(image, command)`: the one door to every rule about changing the cluster.

Pure: the same image and command give the same records. The driver commits the records through Raft,
applies them, and only then gives the result to whoever asked.
"""

from typing import Any, Final, TypeVar

from chronik.cluster import commands as c
from chronik.cluster.decide_brokers import (
    allocate_producer_ids,
    broker_heartbeat,
    create_cluster,
    fence_broker,
    register_broker,
    unregister_broker,
)
from chronik.cluster.decide_configs import (
    alter_configs,
    incremental_alter_configs,
    set_feature,
)
from chronik.cluster.decide_partitions import alter_partition, elect_leaders
from chronik.cluster.decide_topic_changes import create_partitions, delete_topics
from chronik.cluster.decide_topics import create_topics
from chronik.cluster.image import ClusterImage
from chronik.cluster.reassignment import alter_reassignments

R = TypeVar("R")

DEFAULT_SETTINGS: Final = c.ControllerSettings()

_DECIDE: Final[dict[type[c.Command[Any]], Any]] = {
    c.CreateCluster: create_cluster,
    c.CreateTopics: create_topics,
    c.DeleteTopics: delete_topics,
    c.CreatePartitions: create_partitions,
    c.AlterConfigs: alter_configs,
    c.IncrementalAlterConfigs: incremental_alter_configs,
    c.SetFeature: set_feature,
    c.RegisterBroker: register_broker,
    c.BrokerHeartbeat: broker_heartbeat,
    c.FenceBroker: fence_broker,
    c.UnregisterBroker: unregister_broker,
    c.AllocateProducerIds: allocate_producer_ids,
    c.AlterPartition: alter_partition,
    c.ElectLeaders: elect_leaders,
    c.AlterReassignments: alter_reassignments,
}


def decide(
    image: ClusterImage,
    command: c.Command[R],
    settings: c.ControllerSettings = DEFAULT_SETTINGS,
) -> c.Decision[R]:
    """The records a command leads to, and its answer once they are committed."""
    decision: c.Decision[R] = _DECIDE[type(command)](image, command, settings)
    return decision
