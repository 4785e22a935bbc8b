"""One row per topic partition: what its log holds, and who leads it.

`latest` is where a reader of committed records ends (the last stable offset), `high_watermark`
where a reader of all records does; they differ while a transaction is open.
"""

import pyarrow as pa

from chronik.pipeline.cluster_facts import Facts

COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "earliest": pa.int64(),
    "latest": pa.int64(),
    "high_watermark": pa.int64(),
    "leader": pa.int32(),
    "replicas": pa.list_(pa.int32()),
    "isr": pa.list_(pa.int32()),
}
ARROW = pa.schema(COLUMNS)


def rows(facts: Facts) -> pa.Table:
    """The offsets of a partition without a leader are null."""
    found = []
    for one in facts.partitions:
        held = facts.offsets.get((one.topic, one.partition))
        found.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "earliest": held and held.earliest,
                "latest": held and held.last_stable,
                "high_watermark": held and held.high_watermark,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
            }
        )
    return pa.Table.from_pylist(found, ARROW)
