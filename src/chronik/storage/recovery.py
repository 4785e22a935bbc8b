"""Opens a log after whatever happened: orphans swept, torn ends cut, indexes rebuilt, damage told.

Everything but the last segment was synced before the last one was created, and the index of the
last one says up to where it was synced; so only what follows that, or the recovery point if it is
further, is read with its CRC. Reading is bounded by the last checkpoint, not by the log's size.

What is found wrong:
- beyond the recovery point, nothing valid follows: a torn or zero-filled tail of writes that nobody
  was told about. It is cut.
- beyond the recovery point, valid batches follow: they may have been acknowledged since the last
  checkpoint. The log is cut, the bytes are kept in `<segment>.log.<position>.damaged`, reported.
- below the recovery point: data damage. The damaged bytes are kept aside and reported, the log gets
  a gap there, and what follows is served from a segment of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from chronik.model.limits import REREAD_BATCHES_MAX
from chronik.storage.checkpoints import CorruptCheckpointError
from chronik.storage.compaction_swap import (
    CLEANER_CHECKPOINT_FILE,
    read_cleaner_checkpoint,
    settle_swaps,
)
from chronik.storage.epochs import EPOCH_FILE, EpochCache, read_epochs
from chronik.storage.fs import TEMPORARY_SUFFIX, join, unlink_if_present
from chronik.storage.index import SegmentIndex
from chronik.storage.log import Log
from chronik.storage.operations import (
    LOG_START_FILE,
    RECOVERY_LIMIT_FILE,
    read_log_start,
    read_recovery_limit,
    write_recovery_limit,
)
from chronik.storage.producer_snapshot import offsets_in, snapshot_path
from chronik.storage.scan import Damage, Scan, Trust, scan_segment
from chronik.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogConfig,
    Segment,
    Storage,
    read_index,
    read_summary,
    segment_path,
    unlink_index,
    write_index,
)
from chronik.storage.write import unlink_segment
from chronik.wire.records import BatchHeader

DELETED_SUFFIX = ".deleted"


@dataclass(slots=True)
class RecoveryReport:
    """What was found and done. `damage` is for people: acknowledged data may be missing."""

    bytes_scanned: int = 0
    bytes_cut: int = 0
    indexes_rebuilt: list[str] = field(default_factory=list)
    files_swept: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checkpointed_to: int = -1
    """Up to here the files beside the segments describe the log; -1 where they do not."""
    snapshots: list[int] = field(default_factory=list)
    """Offsets of the producers' snapshots, ascending."""
    tail: tuple[int, list[BatchHeader]] | None = None
    """The batches from an offset to the end, where these few were read anyway."""


def recover(
    storage: Storage,
    directory: str,
    config: LogConfig,
    recovery_point: int = 0,
    *,
    verify: bool = False,
    clean: bool = False,
) -> tuple[Log, RecoveryReport]:
    """The log in `directory` (which exists), ready to be read and written. Blocks.

    `verify` reads every byte with its CRC, whatever the checkpoints say. `clean` says that the
    node's clean-shutdown mark was there, which spares one sync per log.
    """
    recovery = _Recovery(storage, directory, config, recovery_point)
    recovery.verify = verify
    recovery.clean = clean
    return recovery.run()


class _Recovery:
    """One run over one directory."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        config: LogConfig,
        recovery_point: int,
    ) -> None:
        self.storage = storage
        self.fs = storage.fs
        self.directory = directory
        self.config = config
        self.recovery_point = recovery_point
        self.verify = False
        self.clean = False
        self.report = RecoveryReport()
        self.start = 0
        self.epochs_seen: list[tuple[int, int]] = []
        self.walked_whole = 0
        """Segments of which every batch was looked at."""
        self.names: set[str] = set()
        """What is in the directory: with thousands of logs it pays not to look for the rest."""

    def run(self) -> tuple[Log, RecoveryReport]:
        if not self.clean:
            # A killed process may have changed names that a power cut would still undo.
            self.fs.fsync_dir(self.directory)
        names = self.fs.listdir(self.directory)
        settled = settle_swaps(self.fs, self.directory, names)
        if settled:
            self.report.files_swept += settled
            names = self.fs.listdir(self.directory)
        self.names = set(names)
        bases = self._sweep(names)
        self.start = start = self._log_start()
        bases = self._drop_below(bases, start)
        limited = self._limit_recovery_point()
        segments = self._recover_segments(bases)
        end = segments[-1].summary().next_offset if segments else start
        if not segments:
            self.report.checkpointed_to = end
        if segments and end < start:
            segments, end = self._restart_at(segments, start)
        first = segments[0].base_offset if segments else start
        log = Log(self.storage, self.directory, self.config, segments, max(start, first), end)
        log.epochs = self._epochs(segments)
        log.epochs.truncate_end(log.end_offset)
        log.epochs.truncate_start(log.start_offset)
        log.first_dirty_offset = self._first_dirty_offset()
        self._drop_snapshots_beyond(log.end_offset)
        if limited is not None:
            log.was_cut = True
            if limited != log.end_offset:
                write_recovery_limit(self.fs, self.directory, log.end_offset)
        return log, self.report

    def _sweep(self, names: Iterable[str]) -> list[int]:
        """Removes what a crash left behind; the base offsets of the segments that are there."""
        bases = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in names if _is_log(name))
        stems = {f"{base:020d}" for base in bases}
        for name in names:
            orphan = name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and (
                name.partition(".")[0] not in stems
            )
            if orphan or name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX)):
                unlink_if_present(self.fs, join(self.directory, name))
                self.report.files_swept.append(name)
        if self.report.files_swept:
            self.fs.fsync_dir(self.directory)
        return bases

    def _log_start(self) -> int:
        if LOG_START_FILE not in self.names:
            return 0
        try:
            return read_log_start(self.fs, self.directory) or 0
        except CorruptCheckpointError as error:
            self.report.notes.append(str(error))
            return 0

    def _first_dirty_offset(self) -> int:
        if CLEANER_CHECKPOINT_FILE not in self.names:
            return 0
        try:
            return read_cleaner_checkpoint(self.fs, self.directory)
        except CorruptCheckpointError as error:
            self.report.notes.append(str(error))
            return 0

    def _limit_recovery_point(self) -> int | None:
        """A log that was cut is trusted only up to the cut, or to its checkpoint since."""
        if RECOVERY_LIMIT_FILE not in self.names:
            return None
        try:
            limit = read_recovery_limit(self.fs, self.directory)
        except CorruptCheckpointError as error:
            self.report.notes.append(str(error))
            limit = 0
        if limit is not None:
            self.recovery_point = min(self.recovery_point, limit)
        return limit

    def _drop_below(self, bases: list[int], start: int) -> list[int]:
        """Finishes an interrupted deletion: the log start was durable before it began."""
        while len(bases) > 1 and bases[1] <= start:
            base = bases.pop(0)
            unlink_segment(self.storage, self.directory, base)
            self.report.files_swept.append(f"{base:020d}{LOG_SUFFIX}")
        return bases

    def _restart_at(self, segments: list[Segment], start: int) -> tuple[list[Segment], int]:
        """The log ends before its start (unsynced records were deleted, then lost): begin there."""
        self.report.notes.append(f"log ends before its start {start}: emptied")
        for segment in reversed(segments):
            unlink_segment(self.storage, self.directory, segment.base_offset)
            self.fs.fsync_dir(self.directory)
        return [], start

    def _drop_snapshots_beyond(self, end: int) -> None:
        for offset in sorted(offsets_in(self.names)):
            if offset > end:
                unlink_if_present(self.fs, snapshot_path(self.directory, offset))
            else:
                self.report.snapshots.append(offset)

    # Segments.

    def _recover_segments(self, bases: list[int]) -> list[Segment]:
        segments: list[Segment] = []
        pending = list(bases)
        while pending:
            base = pending.pop(0)
            following = pending[0] if pending else None
            segment = self._segment(base)
            if following is not None:
                split = self._recover_sealed(segment, following)
                segment.sealed = True
            else:
                split = self._recover_active(segment)
                segment.sealed = split is not None
            segments.append(segment)
            if split is not None:
                pending.insert(0, split)
        return segments

    def _segment(self, base: int) -> Segment:
        size = self.fs.size(segment_path(self.directory, base))
        interval = self.config.index_interval_bytes
        return Segment(self.storage, self.directory, base, size, interval)

    def _recover_sealed(self, segment: Segment, following: int) -> int | None:
        summary = read_summary(self.fs, self.directory, segment.base_offset)
        if not self.verify and summary is not None and summary.log_size == segment.size:
            segment.trust(summary)
            return None
        trust = Trust(0 if self.verify else following, following, following)
        return self._rescan(segment, SegmentIndex(segment.base_offset), trust)

    def _recover_active(self, segment: Segment) -> int | None:
        has_index = segment.index_paths[0].rpartition("/")[2] in self.names
        summary = read_summary(self.fs, self.directory, segment.base_offset) if has_index else None
        if not self.verify and summary is not None and summary.log_size == segment.size:
            # Closed cleanly or checkpointed: all of it was synced before the index was written.
            segment.trust(summary)
            self.report.checkpointed_to = summary.next_offset
            return None
        index = None
        if has_index and not self.verify:
            index = read_index(self.fs, self.directory, segment.base_offset)
        if index is None or index.log_size > segment.size:
            index = SegmentIndex(segment.base_offset)
        else:
            self.report.checkpointed_to = index.next_offset
        synced = max(self.recovery_point, summary.next_offset if summary is not None else 0)
        crc_from = 0 if self.verify else synced
        return self._rescan(segment, index, Trust(crc_from, synced, None))

    def _rescan(self, segment: Segment, index: SegmentIndex, trust: Trust) -> int | None:
        """Walks the segment from where the index ends. The base of a segment split off, if any."""
        self.walked_whole += not index.log_size
        first = index.next_offset
        found = scan_segment(segment, index, trust)
        is_end = trust.following is None and found.split is None
        is_few = is_end and len(found.headers) <= REREAD_BATCHES_MAX
        self.report.tail = (first, found.headers) if is_few else None
        self.report.bytes_scanned += found.bytes_read
        self.epochs_seen += found.epochs
        # Short of the log's start nothing is missing: a cut there takes the batch it lies in.
        if found.damage is not None and (found.damage.size or trust.synced > self.start):
            self.report.damage.append(found.damage)
        if found.end < segment.size or index.next_offset > self.recovery_point:
            self._shorten(segment, found)
        segment.index = index
        if trust.following is not None or found.split is not None:
            self._save_index(segment, index)
        return found.split

    def _shorten(self, segment: Segment, found: Scan) -> None:
        """Cuts what is no good, and syncs: what is served from now on must survive a power cut."""
        if found.end < segment.size:
            self.report.bytes_cut += segment.size - found.end
            self.report.checkpointed_to = -1
            # As in a truncation: no index may describe what is going to follow.
            unlink_index(self.fs, self.directory, segment.base_offset)
            self.fs.fsync_dir(self.directory)
        with self.storage.files.pinned(segment.path) as file:
            if found.end < segment.size:
                self.fs.truncate(file, found.end)
            self.fs.fdatasync(file)
        segment.size = found.end

    def _save_index(self, segment: Segment, index: SegmentIndex) -> None:
        write_index(self.fs, self.directory, index, sync=True)
        self.report.indexes_rebuilt.append(f"{segment.base_offset:020d}")
        segment.index = None
        segment.trust(index.summary)

    # Leader epochs.

    def _epochs(self, segments: list[Segment]) -> EpochCache:
        cache = self._epochs_from_file()
        if cache is None:
            walked_all = self.walked_whole == len(segments)
            cache = EpochCache() if walked_all else self._epochs_from_batches(segments)
        for epoch, offset in self.epochs_seen:
            cache.assign(epoch, offset)
        return cache

    def _epochs_from_file(self) -> EpochCache | None:
        if EPOCH_FILE not in self.names:
            return None
        try:
            return read_epochs(self.fs, self.directory)
        except CorruptCheckpointError as error:
            self.report.notes.append(str(error))
            return None

    def _epochs_from_batches(self, segments: list[Segment]) -> EpochCache:
        cache = EpochCache()
        for segment in segments:
            for _, header in segment.headers(0):
                cache.assign(header.leader_epoch, header.base_offset)
        return cache


def _is_log(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdigit()
