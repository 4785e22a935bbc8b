"""Plans an append from memory: which batch goes to which segment, at which position.

The plan is a `Write`; nothing of the log changes until it was executed and is applied.
"""

from typing import NamedTuple, Protocol

from chronik.storage.index import RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE, SegmentIndex, Span
from chronik.storage.segment import LogConfig, Segment, span_of
from chronik.storage.write import Part, Write
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
        index = active.index if active.index is not None else active.loaded_index()
        self._write.parts.append(Part(active, index, created=False))

    def add(self, batch: PlacedBatch, *, may_begin_before_end: bool) -> None:
        """Places the next buffer. The first one of an empty log may begin before the log does:
        a follower that starts inside a batch is sent all of it."""
        write = self._write
        base_offset, last_offset = batch.base_offset, batch.last_offset
        assert last_offset >= write.end_offset, "offsets only grow"
        assert may_begin_before_end or base_offset >= write.end_offset, "offsets only grow"
        if not write.parts or self._must_roll(write.parts[-1], batch):
            self._roll(base_offset)
        self._place(write.parts[-1], batch)
        write.end_offset = last_offset + 1
        write.size += batch.size

    def _must_roll(self, part: Part, batch: PlacedBatch) -> bool:
        if batch.last_offset - part.segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not part.end:
            return False
        config, index = self._config, part.index
        if part.end + batch.size > config.segment_bytes:
            return True
        # The larger of the two index files, should every new batch become an entry.
        entries = len(index.offsets) + len(part.spans) + 1
        if entries * TIME_ENTRY_SIZE > config.index_bytes_max and self._index_is_full(part):
            return True
        first = index.first_timestamp if part.position else part.spans[0].max_timestamp
        now = batch.max_timestamp if batch.max_timestamp != NO_TIMESTAMP else self._now_ms
        return first != NO_TIMESTAMP and now - first > config.segment_ms

    def _index_is_full(self, part: Part) -> bool:
        entries = part.index.bytes_used + TIME_ENTRY_SIZE * (len(part.spans) + 1)
        return entries > self._config.index_bytes_max

    def _roll(self, base_offset: int) -> None:
        write, interval = self._write, self._config.index_interval_bytes
        segment = Segment(write.storage, write.directory, base_offset, 0, interval)
        write.parts.append(Part(segment, SegmentIndex(base_offset), created=True))

    def _place(self, part: Part, batch: PlacedBatch) -> None:
        buffer, size, position = batch.buffer, batch.size, part.end
        part.buffers.append(buffer)
        part.end = position + size
        if read_prefix(buffer, 0)[1] == size:
            base_offset = batch.base_offset
            part.spans.append(
                Span(base_offset, batch.last_offset, batch.max_timestamp, position, size)
            )
            if batch.leader_epoch > self._epoch:
                self._note_epoch(batch.leader_epoch, base_offset)
            return
        for at, header in scan(buffer):
            part.spans.append(span_of(position + at, header))
            self._note_epoch(header.leader_epoch, header.base_offset)
        assert part.spans, "only whole batches are appended"
        last = part.spans[-1]
        assert part.end == last.position + last.size, "only whole batches are appended"
        assert last.last_offset == batch.last_offset

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._write.new_epochs.append((epoch, offset))
