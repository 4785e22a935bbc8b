"""One row per broker: where it is, and what it leads and holds."""

import pyarrow as pa

from chronik.pipeline.cluster_facts import Facts

COLUMNS: dict[str, pa.DataType] = {
    "broker": pa.int32(),
    "host": pa.string(),
    "port": pa.int32(),
    "rack": pa.string(),
    "controller": pa.bool_(),
    "leaders": pa.int32(),
    "replicas": pa.int32(),
    "out_of_sync": pa.int32(),
}
ARROW = pa.schema(COLUMNS)


def rows(facts: Facts) -> pa.Table:
    """`leaders`, `replicas` and `out_of_sync` count partitions, internal ones too."""
    found = []
    for one in facts.brokers:
        held = [part for part in facts.partitions if one.id in part.replicas]
        found.append(
            {
                "broker": one.id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "controller": one.id == facts.controller,
                "leaders": sum(part.leader == one.id for part in facts.partitions),
                "replicas": len(held),
                "out_of_sync": sum(one.id not in part.isr for part in held),
            }
        )
    return pa.Table.from_pylist(found, ARROW)
