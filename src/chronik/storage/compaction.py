"""Log compaction: of each key the last record stays, no offset moves (cleanup.policy=compact).

A cleaning is one round over one log:

1. `compaction_plan.plan` (event loop): which sealed segments are dirty, whether it is time;
2. `Compaction.build_map` (a thread of its own, takes long): the last offset of each dirty key;
3. for each of `Compaction.groups`: `rewrite` (same thread) writes one `.cleaned` file from some
   adjacent segments, while the log takes appends and is read;
4. `Log.swap` (event loop), `Swap.execute` (disk thread), `Log.apply`: the short part. A log whose
   segments have changed since answers None, and the cleaning is dropped.

What stays, as in Kafka: the last record of each key; tombstones until their delete horizon
(KIP-534) has passed; control batches; the last batch of each producer, without records if need be,
so that sequence numbers are remembered; and likewise the last batch of each segment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chronik.model.limits import COMPACTED_SEGMENTS_MAX, OFFSET_MAP_BYTES_MAX
from chronik.storage.compaction_files import Output, batches, damaged
from chronik.storage.compaction_map import MapBuilder, OffsetMap
from chronik.storage.compaction_plan import Plan, Source
from chronik.storage.compaction_records import (
    Pace,
    emptied,
    has_delete_horizon,
    judged,
    no_pace,
    rebuilt,
    records_of,
)
from chronik.storage.compaction_swap import Cleaned
from chronik.storage.index import RELATIVE_OFFSET_MAX, SegmentIndex
from chronik.wire.record_iter import CorruptRecords
from chronik.wire.records import BatchHeader, Buffer


@dataclass(slots=True)
class Progress:
    """What a cleaning has done so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


@dataclass(slots=True)
class Compaction:
    """One cleaning: the part that takes long and needs nothing of the log but its sealed files.

    `producers` has the last data offset of each producer the partition remembers. `pace` is called
    every millisecond or so; it may sleep, and may raise to end the cleaning.
    """

    plan: Plan
    now_ms: int
    producers: Mapping[int, int] = field(default_factory=dict)
    pace: Pace = no_pace
    map_bytes_max: int = OFFSET_MAP_BYTES_MAX
    progress: Progress = field(default_factory=Progress)
    _offsets: OffsetMap = field(init=False)

    def __post_init__(self) -> None:
        self._offsets = OffsetMap(self.map_bytes_max)

    @property
    def end_offset(self) -> int:
        """How far the log is clean after this cleaning. Known once the map is built."""
        return self._offsets.end_offset

    def build_map(self) -> None:
        """Reads the dirty part. Blocks for long."""
        plan = self.plan
        builder = MapBuilder(self._offsets, plan.first_dirty_offset, self.pace)
        for source in plan.sources:
            if source.end_offset > plan.first_dirty_offset and not builder.full:
                self._add(builder, source)
        if not builder.full:
            self._offsets.end_offset = plan.end_offset
        builder.finish()

    def _add(self, builder: MapBuilder, source: Source) -> None:
        for _, header, batch in batches(self.plan.fs, source):
            self.pace()
            try:
                builder.add(header, batch)
            except CorruptRecords as error:
                raise damaged(source, header, str(error)) from error
            if builder.full:
                return

    def groups(self) -> list[tuple[Source, ...]]:
        """Adjacent segments that become one: together within segment.bytes and an index's reach."""
        groups: list[list[Source]] = []
        for source in self.plan.sources:
            if source.base_offset >= self.end_offset:
                break
            if groups and self._fits(groups[-1], source):
                groups[-1].append(source)
            else:
                groups.append([source])
        return [tuple(group) for group in groups]

    def _fits(self, group: Sequence[Source], source: Source) -> bool:
        size = sum(one.size for one in group) + source.size
        reach = source.end_offset - group[0].base_offset
        return (
            size <= self.plan.segment_bytes
            and reach <= RELATIVE_OFFSET_MAX
            and len(group) < COMPACTED_SEGMENTS_MAX
        )

    def rewrite(self, group: Sequence[Source], *, last: bool) -> Cleaned:
        """Writes the `.cleaned` file of a group, durably. Blocks for long.

        `last` says that the log is clean once this group is in its place.
        """
        output = Output(self.plan.fs, self.plan.directory, group[0].base_offset)
        try:
            changed = self._fill(output, group)
            output.finish()
        except BaseException:
            output.discard()
            raise
        index: SegmentIndex | None = output.index
        if len(group) == 1 and not changed:
            output.discard()
            index = None
        self.progress.bytes_written += output.index.log_size
        return Cleaned(
            tuple(source.segment for source in group),
            index,
            self.plan.truncations,
            self.end_offset if last else None,
        )

    def close(self) -> None:
        """Frees the map."""
        self._offsets.clear(self.pace)

    def _fill(self, output: Output, group: Sequence[Source]) -> bool:
        """True where a batch was changed or left out."""
        changed = False
        for source in group:
            for position, header, batch in batches(self.plan.fs, source):
                self.pace()
                self.progress.bytes_read += header.size
                final = source is group[-1] and position + header.size == source.size
                kept = self._cleaned(source, header, batch, final=final)
                changed = changed or kept is not batch
                if kept is not None:
                    output.add(kept, self.plan.interval)
        return changed

    def _cleaned(
        self, source: Source, header: BatchHeader, batch: memoryview, *, final: bool
    ) -> Buffer | None:
        """The batch itself where it stays as it is, another one, or None where it goes."""
        if header.is_control or header.base_offset >= self.end_offset:
            return batch
        if header.record_count:
            try:
                kept = self._retained(header, batch)
            except CorruptRecords as error:
                raise damaged(source, header, str(error)) from error
            if kept is not None:
                return kept
        if not final and self.producers.get(header.producer_id) != header.last_offset:
            return None
        return emptied(header) if header.record_count else batch

    def _retained(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """The batch with the records that stay; None where there are none."""
        data = records_of(header, batch)
        keep = _Judge(self._offsets, header, self.now_ms)
        kept = judged(header, data, keep, self.pace)
        self.progress.records_read += header.record_count
        self.progress.records_kept += len(kept.frames)
        horizon_ms = None
        # Not before the map has judged all of the batch: older records must be gone by then.
        judged_whole = header.last_offset < self.end_offset
        if kept.has_tombstones and judged_whole and not has_delete_horizon(header):
            horizon_ms = self.now_ms + self.plan.rules.delete_retention_ms
        if not kept.frames:
            return None
        if len(kept.frames) == header.record_count and horizon_ms is None:
            return batch
        return rebuilt(header, data, kept, horizon_ms)


class _Judge:
    """Which records of one batch stay."""

    __slots__ = ("_drops_tombstones", "_end_offset", "_last_offset")

    def __init__(self, offsets: OffsetMap, header: BatchHeader, now_ms: int) -> None:
        self._last_offset = offsets.last_offset
        self._end_offset = offsets.end_offset
        self._drops_tombstones = has_delete_horizon(header) and header.base_timestamp <= now_ms

    def __call__(self, offset: int, key: bytes | None, has_value: bool) -> bool:
        if offset >= self._end_offset:
            return True
        if key is None or offset < self._last_offset(key):
            return False
        return has_value or not self._drops_tombstones
