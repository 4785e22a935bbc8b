"""One row per consumer group: its state, its members, and how far it is behind in all."""

import pyarrow as pa

from chronik.pipeline.cluster_facts import Facts
from chronik.pipeline.lag_table import lag

COLUMNS: dict[str, pa.DataType] = {
    "group": pa.string(),
    "state": pa.string(),
    "type": pa.string(),
    "assignor": pa.string(),
    "coordinator": pa.int32(),
    "members": pa.int32(),
    "lag": pa.int64(),
}
ARROW = pa.schema(COLUMNS)


def rows(facts: Facts) -> pa.Table:
    """`lag` sums what is known; null where nothing is. `chronik.lag` has the partitions."""
    found = []
    for one in facts.groups:
        lags = [lag(facts, one, part) for part in one.committed]
        known = [each for each in lags if each is not None]
        found.append(
            {
                "group": one.name,
                "state": one.state,
                "type": one.kind,
                "assignor": one.assignor,
                "coordinator": one.coordinator,
                "members": len(one.members),
                "lag": sum(known) if known else None,
            }
        )
    return pa.Table.from_pylist(found, ARROW)
