"""One row per topic: how many partitions it has, and whether all of their replicas are there."""

import pyarrow as pa

from chronik.pipeline.cluster_facts import Facts

COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partitions": pa.int32(),
    "replication_factor": pa.int32(),
    "under_replicated": pa.int32(),
    "offline": pa.int32(),
    "internal": pa.bool_(),
}
ARROW = pa.schema(COLUMNS)


def rows(facts: Facts) -> pa.Table:
    """`under_replicated` and `offline` count partitions: in-sync replicas missing, no leader."""
    found = []
    for topic, internal in facts.topics.items():
        parts = [one for one in facts.partitions if one.topic == topic]
        found.append(
            {
                "topic": topic,
                "partitions": len(parts),
                "replication_factor": max((len(one.replicas) for one in parts), default=0),
                "under_replicated": sum(len(one.isr) < len(one.replicas) for one in parts),
                "offline": sum(one.leader is None for one in parts),
                "internal": internal,
            }
        )
    return pa.Table.from_pylist(found, ARROW)
