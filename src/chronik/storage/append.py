"""Plans an append from memory: which batch goes to which segment, at which position.

The plan is a `Write`; nothing of the log changes until it was executed and is applied.
"""

from typing import NamedTuple, Protocol

from chronik.storage.index import RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE, SegmentIndex, Span
from chronik.storage.operations import Part, Write
from chronik.storage.segment import LogConfig, Segment, span_of
from chronik.wire.records import NO_TIMESTAMP, Buffer, read_prefix, scan


class Appendable(NamedTuple):
    """One or several whole batches, offsets and leader epoch already in them."""

    buffer: Buffer
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    size: int


class PlacedBatch(Protocol):
    """What the log reads of a batch: `Appendable` and the replica's `Appended` have it."""

    @property
    def buffer(self) -> Buffer: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def size(self) -> int: ...


class Planner:
    """Fills one write with batches, one after the other."""

    __slots__ = ("_config", "_epoch", "_now_ms", "_write")

    def __init__(self, config: LogConfig, write: Write, epoch: int, now_ms: int) -> None:
        self._config = config
        self._write = write
        self._epoch = epoch
        self._now_ms = now_ms

    def begin_with(self, active: Segment) -> None:
        """The log has an active segment; its index is loaded if it was not."""
        self._write.parts.append(Part(active, active.loaded_index(), created=False))

    def add(self, batch: PlacedBatch, *, may_begin_before_end: bool) -> None:
        """Places the next buffer. The first one of an empty log may begin before the log does:
        a follower that starts inside a batch is sent all of it."""
        write = self._write
        assert batch.last_offset >= write.end_offset, "offsets only grow"
        assert may_begin_before_end or batch.base_offset >= write.end_offset, "offsets only grow"
        if not write.parts or self._must_roll(write.parts[-1], batch):
            self._roll(batch.base_offset)
        self._place(write.parts[-1], batch)
        write.end_offset = batch.last_offset + 1
        write.size += batch.size

    def _must_roll(self, part: Part, batch: PlacedBatch) -> bool:
        if batch.last_offset - part.segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not part.end:
            return False
        if part.end + batch.size > self._config.segment_bytes:
            return True
        entries = part.index.bytes_used + TIME_ENTRY_SIZE * (len(part.spans) + 1)
        return entries > self._config.index_bytes_max or self._is_too_old(part, batch)

    def _is_too_old(self, part: Part, batch: PlacedBatch) -> bool:
        first = part.index.first_timestamp if part.position else part.spans[0].max_timestamp
        now = batch.max_timestamp if batch.max_timestamp != NO_TIMESTAMP else self._now_ms
        return first != NO_TIMESTAMP and now - first > self._config.segment_ms

    def _roll(self, base_offset: int) -> None:
        write, interval = self._write, self._config.index_interval_bytes
        segment = Segment(write.storage, write.directory, base_offset, 0, interval)
        write.parts.append(Part(segment, SegmentIndex(base_offset), created=True))

    def _place(self, part: Part, batch: PlacedBatch) -> None:
        position = part.end
        part.buffers.append(batch.buffer)
        if read_prefix(batch.buffer, 0)[1] == batch.size:
            ends = (batch.base_offset, batch.last_offset, batch.max_timestamp)
            part.spans.append(Span(*ends, position, batch.size))
            self._note_epoch(batch.leader_epoch, batch.base_offset)
        else:
            for at, header in scan(batch.buffer):
                part.spans.append(span_of(position + at, header))
                self._note_epoch(header.leader_epoch, header.base_offset)
        assert part.end == position + batch.size, "only whole batches are appended"
        assert part.spans[-1].last_offset == batch.last_offset

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._write.new_epochs.append((epoch, offset))
