"""One partition's log: a directory `<topic>-<partition>` of segments.

The event loop owns the object. Whatever touches files in a way that may block for long is an
operation (`operations.py`): prepared here from memory, executed in a disk thread, applied here. One
operation per log is outstanding at a time. What grows the log changes memory after the disk; what
shrinks it changes memory first, so that nobody reads what is being removed.
"""

from collections.abc import Iterator, Sequence

from chronik.storage.append import PlacedBatch, Planner
from chronik.storage.compaction_swap import Cleaned, Swap
from chronik.storage.epochs import EpochCache
from chronik.storage.errors import LogFailedError, OffsetOutOfRangeError
from chronik.storage.operations import (
    Checkpoint,
    Deletion,
    Operation,
    Reset,
    StartAdvance,
    Truncation,
)
from chronik.storage.retention import Retention, expired_segments
from chronik.storage.segment import LogConfig, Read, Segment, Storage, segment_number
from chronik.storage.timestamps import TimestampOffset, first_at_or_after, largest
from chronik.storage.write import Repair, Write
from chronik.wire.records import BatchHeader


class Log:
    """See the module. `start_offset` is the log start, `end_offset` the next offset."""

    __slots__ = (
        "_aborted",
        "_outstanding",
        "_repair",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "failed",
        "first_dirty_offset",
        "segments",
        "size",
        "start_offset",
        "storage",
        "synced_offset",
        "truncations",
        "unsynced",
        "was_cut",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.config = config
        self.segments = segments
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.synced_offset = end_offset
        """Up to here the log survives a power cut: the recovery point."""
        self.size = sum(segment.size for segment in segments)
        self.epochs = EpochCache()
        self.failed = False
        self._outstanding: Operation | None = None
        self._repair: Repair | None = None
        self._aborted = False
        self.unsynced: Write | None = None
        """Exposed, and its sync failed: nothing else happens before it is tried again."""
        self.was_cut = False
        self.truncations = 0
        self.first_dirty_offset = 0  # up to here it is compacted

    # Appending.

    def prepare(self, batches: Sequence[PlacedBatch], now_ms: int) -> Write:
        """Plans an append: positions and rolls. Memory only, once the active index is loaded."""
        if self._outstanding is not None or self.failed or self.unsynced is not None:
            self._check_idle()  # which says what is wrong
        write = Write(self.storage, self.directory, self.end_offset, self._repair)
        planner = Planner(self.config, write, self.epochs.latest, now_ms)
        if self.segments:
            planner.begin_with(self.segments[-1])
        empty = self.start_offset == self.end_offset
        for batch in batches:
            planner.add(batch, may_begin_before_end=empty and not write.size)
        if write.seals:
            write.epochs = self.epochs.after(write.new_epochs, write.base_offset)
        self._outstanding = write
        return write

    def expose(self, write: Write) -> None:
        """It was executed, not synced: readable, though a power cut may yet take it."""
        assert self._outstanding is write
        self._apply_write(write)
        write.exposed = True

    def retry(self) -> Write:
        """The write whose sync failed: to be synced, then applied or aborted again."""
        assert self._outstanding is None, "one operation at a time"
        write, self.unsynced = self.unsynced, None
        assert write is not None
        self._outstanding = write
        return write

    def apply(self, operation: Operation) -> None:
        """The operation was executed: memory follows."""
        self._end(operation)
        match operation:
            case Write():
                if not operation.exposed:
                    self._apply_write(operation)
                if operation.synced:
                    self.synced_offset = operation.end_offset
            case Checkpoint():
                self._apply_checkpoint(operation)
            case StartAdvance():
                self._move_start(operation.start_offset)
            case Truncation():
                self._repair = None
                self.was_cut = True
                self.synced_offset = min(self.synced_offset, self.end_offset)
            case Reset():
                self._repair = None
                self.was_cut = True
                self.synced_offset = self.end_offset
            case Deletion():
                self._repair = None
                self.epochs.truncate_start(self.start_offset)
            case Swap():
                self._apply_swap(operation)

    def abort(self, operation: Operation) -> None:
        """`execute` raised, or will not be called: memory stays (or is put back) as it was."""
        self._end(operation)
        self._aborted = True
        match operation:
            case Write():
                self._abort_write(operation)
            case Deletion():
                self._abort_deletion(operation)
            case Truncation() | Reset():
                self.failed = True
            case Checkpoint():
                # Bytes that were applied may be lost, and no later sync would tell.
                self.failed = self.failed or operation.sync_failed
            case Swap():
                operation.release_old()
                self.failed = self.failed or operation.torn
            case StartAdvance():
                pass

    def _check_idle(self) -> None:
        if self.failed:
            raise LogFailedError(f"{self.directory} must be recovered before it is written again")
        assert self._outstanding is None, "one operation at a time"
        if self.unsynced is not None:
            raise LogFailedError(f"{self.directory}: the disk has not taken what was written last")

    def _begin(self, operation: Operation) -> None:
        self._check_idle()
        self._outstanding = operation

    def _end(self, operation: Operation) -> None:
        assert self._outstanding is operation
        self._outstanding = None

    def _apply_write(self, write: Write) -> None:
        self._repair = None
        for part in write.parts:
            if part.created:
                if self.segments:
                    self.segments[-1].seal()
                part.segment.index = part.index
                self.segments.append(part.segment)
            part.segment.append(part.spans)
        for epoch, offset in write.new_epochs:
            self.epochs.assign(epoch, offset)
        if write.seals:
            self.epochs.changed = False
        self.size += write.size
        self.end_offset = write.end_offset

    def _abort_write(self, write: Write) -> None:
        if write.exposed:
            # Others may have it: no other bytes may take its place, so it stays.
            self.unsynced = write
        else:
            self._schedule_repair({one.segment.base_offset for one in write.parts if one.created})
        if write.sync_failed and self.synced_offset < write.base_offset:
            # Bytes that were applied before may be lost, and no later sync would tell.
            self.failed = True

    def _schedule_repair(self, strays: set[int]) -> None:
        if self._repair is not None:
            strays = strays | self._repair.strays
        active = self.segments[-1] if self.segments else None
        self._repair = Repair(self.storage, self.directory, active, strays)

    # Reading.

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        at_least_one_batch: bool,
        whole: bool = False,
    ) -> Read:
        """Batches from the one containing `offset` on, none that reaches `end_offset` or beyond.

        Cut at `max_bytes` as Kafka does: the last batch may be partial, the first is whole if
        `at_least_one_batch`; none is partial if `whole`, as far as the index knows them. One
        segment per call.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"{offset} not in [{self.start_offset}, {self.end_offset}]")
        end_offset = min(end_offset, self.end_offset)
        number = len(self.segments) - 1
        if number >= 0 and offset < self.segments[number].base_offset:
            number = segment_number(self.segments, offset)  # most read the newest
        while offset < end_offset and 0 <= number < len(self.segments):
            segment = self.segments[number]
            if segment.base_offset >= end_offset:
                break
            limit = None if self._segment_end(number) <= end_offset else end_offset
            found = segment.read(
                offset, max_bytes, limit, at_least_one_batch=at_least_one_batch, whole=whole
            )
            if found is not None:
                is_last = self._segment_end(number) >= end_offset
                return found if is_last else found._replace(is_all=False)
            number += 1
        return Read([], 0, offset, -1, -1)

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """Headers of the batches from `offset` on, for replay after a producer snapshot. Blocks."""
        for segment in self.segments[segment_number(self.segments, offset) :]:
            position = segment.loaded_index().position_of(offset)
            for _, header in segment.headers(position):
                if header.last_offset >= offset:
                    yield header

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at least as young as `timestamp`."""
        return first_at_or_after(self.segments, self.start_offset, timestamp)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the largest timestamp of the log (KIP-734)."""
        return largest(self.segments, self.start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetsForLeaderEpoch answers; (-1, -1) where unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def divergence(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a follower's log stops being a beginning of this one (KIP-595); None: it is one."""
        return self.epochs.divergence(last_epoch, offset, self.start_offset, self.end_offset)

    def _segment_end(self, number: int) -> int:
        following = number + 1
        if following < len(self.segments):
            return self.segments[following].base_offset
        return self.end_offset

    # Shrinking, checkpoints.

    def truncate_to(self, offset: int) -> Truncation | Reset:
        """Cuts off every batch that reaches `offset` or beyond; `end_offset` says where it ends."""
        if offset < self.start_offset:
            return self.reset_to(offset)
        self._check_idle()
        offset = min(offset, self.end_offset)
        number = segment_number(self.segments, offset)
        truncation = Truncation(self.storage, self.directory, offset)
        truncation.repair = self._repair
        if self.segments and offset < self.end_offset:
            truncation.plan_cut(self.segments[number])
        kept = number + 1 if truncation.cut is not None or offset == self.end_offset else number
        truncation.dropped = self.segments[kept:]
        del self.segments[kept:]
        self.storage.forget_indexes(truncation.dropped)
        self.size = sum(segment.size for segment in self.segments)
        self.end_offset = max(truncation.end_offset, self.start_offset)
        self.truncations, self.first_dirty_offset = self.truncations + 1, 0
        self.epochs.truncate_end(self.end_offset)
        self._outstanding = truncation
        return truncation

    def reset_to(self, offset: int) -> Reset:
        """Drops everything; the log is empty and continues at `offset`."""
        reset = Reset(self.storage, self.directory, offset, self.segments)
        self._begin(reset)
        reset.repair = self._repair
        self.storage.forget_indexes(self.segments)
        self.segments = []
        self.start_offset = self.end_offset = offset
        self.truncations, self.first_dirty_offset = self.truncations + 1, 0
        self.size = 0
        self.epochs.clear()
        return reset

    def advance_start(self, offset: int) -> StartAdvance | None:
        """DeleteRecords: visible once applied, durable before that. None where nothing moves."""
        if offset <= self.start_offset:
            return None
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(f"{offset} lies beyond the log's end {self.end_offset}")
        advance = StartAdvance(self.storage, self.directory, offset)
        self._begin(advance)
        return advance

    def _move_start(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        self.epochs.truncate_start(self.start_offset)

    def expire(
        self, now_ms: int, retention_ms: int, retention_bytes: int, high_watermark: int
    ) -> Deletion | None:
        """Lets go of segments that retention (-1: none) or the log start leave behind.

        Nothing at or above the high watermark goes. An active segment that is expired as a whole
        goes too, as in Kafka; the next write begins a new one.
        """
        retention = Retention(now_ms, retention_ms, retention_bytes, high_watermark)
        count = expired_segments(self.segments, self.start_offset, self.end_offset, retention)
        if not count:
            return None
        gone = self.segments[:count]
        start = max(self._segment_end(count - 1), self.start_offset)
        deletion = Deletion(self.storage, self.directory, gone, start)
        self._begin(deletion)
        deletion.repair, deletion.previous_start = self._repair, self.start_offset
        del self.segments[:count]
        self.storage.forget_indexes(gone)
        self.size -= sum(segment.size for segment in gone)
        self.start_offset = start
        return deletion

    def _abort_deletion(self, deletion: Deletion) -> None:
        if deletion.persisted:
            # The new start is durable: the files left are removed at the next start.
            return
        self.segments[:0] = deletion.segments
        self.size += sum(segment.size for segment in deletion.segments)
        self.start_offset = deletion.previous_start

    def swap(self, cleaned: Cleaned) -> Swap | None:
        """Compaction's short part, see `compaction.py`; None where the log has changed since."""
        if cleaned.truncations != self.truncations or not cleaned.is_within(self.segments):
            return None
        self._check_idle()
        swap = Swap(self.storage, self.directory, cleaned, self.config.index_interval_bytes)
        self._outstanding = swap
        return swap

    def _apply_swap(self, swap: Swap) -> None:
        self.segments = swap.replaced_in(self.segments)
        self.size = sum(segment.size for segment in self.segments)
        if swap.cleaned.first_dirty_offset is not None:
            self.first_dirty_offset = swap.cleaned.first_dirty_offset

    def checkpoint(self, *, closing: bool = False) -> Checkpoint:
        """Bounds the next recovery: everything synced, index and epochs of now on disk.

        `closing`: the files are closed when it is applied.
        """
        active = self.segments[-1] if self.segments else None
        operation = Checkpoint(self.storage, self.directory, self.end_offset, active)
        self._begin(operation)
        operation.closing = closing
        operation.cut = self.was_cut
        operation.sync_names = self._aborted
        operation.sync = self.synced_offset < self.end_offset
        if active is not None and active.index is not None:
            operation.index = active.index
        if self.epochs.changed:
            operation.epochs = self.epochs.entries()
        return operation

    def _apply_checkpoint(self, operation: Checkpoint) -> None:
        self.synced_offset = max(self.synced_offset, operation.end_offset)
        self._aborted = False
        if operation.epochs is not None:
            self.epochs.changed = False
        if operation.closing:
            for segment in self.segments:
                self.storage.files.forget(segment.path)
