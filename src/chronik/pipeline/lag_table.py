"""One row per consumer group and partition that it has committed or that a member reads."""

import pyarrow as pa

from chronik.pipeline.client import TopicPartition
from chronik.pipeline.cluster_facts import Facts, Group

COLUMNS: dict[str, pa.DataType] = {
    "group": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "committed": pa.int64(),
    "high_watermark": pa.int64(),
    "lag": pa.int64(),
    "client_id": pa.string(),
    "member_id": pa.string(),
    "host": pa.string(),
}
ARROW = pa.schema(COLUMNS)


def rows(facts: Facts) -> pa.Table:
    """`lag` is null where nothing was committed yet, or the partition does not answer."""
    found = [_row(facts, group, part) for group in facts.groups for part in _parts(group)]
    return pa.Table.from_pylist(found, ARROW)


def _parts(group: Group) -> list[TopicPartition]:
    assigned = {part for member in group.members for part in member.assignment}
    return sorted(assigned | group.committed.keys())


def _row(facts: Facts, group: Group, part: TopicPartition) -> dict[str, object]:
    owner = next((one for one in group.members if part in one.assignment), None)
    return {
        "group": group.name,
        "topic": part[0],
        "partition": part[1],
        "committed": group.committed.get(part),
        "high_watermark": facts.offsets[part].high_watermark if part in facts.offsets else None,
        "lag": lag(facts, group, part),
        "client_id": owner and owner.client_id,
        "member_id": owner and owner.member_id,
        "host": owner and owner.host,
    }


def lag(facts: Facts, group: Group, part: TopicPartition) -> int | None:
    """Records between the committed offset and the high watermark."""
    if part not in facts.offsets or part not in group.committed:
        return None
    return max(0, facts.offsets[part].high_watermark - group.committed[part])
