"""The durable state of a coordinator: the fold of the committed records, and nothing else.

It changes only in `replay`, so whoever reads the log reaches the state of the one who wrote it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from chronik.groups.records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    OffsetCommitRecord,
    OffsetCommitValue,
    Record,
)


@dataclass(slots=True)
class DurableState:
    """The last stored generation of each group, and the committed offsets."""

    generations: dict[str, GroupMetadataValue] = field(default_factory=dict)
    offsets: dict[str, dict[str, dict[int, OffsetCommitValue]]] = field(default_factory=dict)
    """By group, topic, partition; no empty inner dictionaries."""

    def replay(self, record: Record) -> None:
        """Applies one committed record."""
        if isinstance(record, OffsetCommitRecord):
            self._replay_offset(record)
        else:
            self._replay_generation(record)

    def knows(self, group_id: str) -> bool:
        """True where the log holds anything of the group."""
        return group_id in self.generations or group_id in self.offsets

    def offset(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        """The committed offset of a partition."""
        return self.offsets.get(group_id, {}).get(topic, {}).get(partition)

    def offsets_of(self, group_id: str) -> Iterator[tuple[str, int, OffsetCommitValue]]:
        """All committed offsets of a group."""
        for topic, partitions in self.offsets.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield topic, partition, value

    def _replay_generation(self, record: GroupMetadataRecord) -> None:
        if record.value is None:
            self.generations.pop(record.group_id, None)
        else:
            self.generations[record.group_id] = record.value

    def _replay_offset(self, record: OffsetCommitRecord) -> None:
        if record.value is not None:
            topics = self.offsets.setdefault(record.group_id, {})
            topics.setdefault(record.topic, {})[record.partition] = record.value
            return
        topics = self.offsets.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            topics.pop(record.topic, None)
        if not topics:
            self.offsets.pop(record.group_id, None)
