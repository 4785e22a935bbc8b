"""Reads a segment's batches one after the other and says where they stop being good, and why."""

import mmap
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from chronik.model.limits import REREAD_BATCHES_MAX
from chronik.storage.fs import FileSystem, copy_range, read_exactly
from chronik.storage.index import RELATIVE_OFFSET_MAX, SegmentIndex
from chronik.storage.segment import HEADER_WINDOW_BYTES, Segment, segment_path, span_of
from chronik.wire.records import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_OFFSET,
    BatchHeader,
    batch_crc,
    read_header,
)

SCAN_WINDOW_BYTES = 1024 * 1024
DAMAGED_SUFFIX = ".damaged"
_MAGIC_BYTE = bytes([MAGIC])


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that should have been batches. They are kept in `kept_in`, never served."""

    path: str
    position: int
    size: int
    offset: int
    """The first offset that is missing."""
    kept_in: str


@dataclass(slots=True)
class Scan:
    """The outcome for one segment: it is good up to `end`."""

    end: int
    bytes_read: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    """The first batches; all of them where they are at most REREAD_BATCHES_MAX."""
    damage: Damage | None = None
    split: int | None = None
    """Base offset of the segment that was split off behind the damage."""


class _Window:
    """A file read forwards, with the bytes that were really read counted."""

    __slots__ = ("bytes_read", "data", "file", "fs", "size", "start")

    def __init__(self, fs: FileSystem, file: int, size: int) -> None:
        self.fs = fs
        self.file = file
        self.size = size
        self.start = 0
        self.data = memoryview(b"")
        self.bytes_read = 0

    def get(self, position: int, size: int, ahead: int) -> memoryview:
        """`size` bytes, or fewer at the end of the file; reads `ahead` bytes if it must read."""
        stop = min(position + size, self.size)
        if position < self.start or stop > self.start + len(self.data):
            wanted = min(max(size, ahead), self.size - position)
            self.data = memoryview(read_exactly(self.fs, self.file, wanted, position))
            self.start = position
            self.bytes_read += len(self.data)
        return self.data[position - self.start : stop - self.start]


class Trust(NamedTuple):
    """What is known of a segment before it is read."""

    crc_from: int
    """CRCs are checked from this offset on."""
    synced: int
    """Batches below this offset were synced: one that is missing there is damage."""
    following: int | None
    """Base offset of the next segment."""


def scan_segment(segment: Segment, index: SegmentIndex, trust: Trust) -> Scan:
    """Adds the batches after the index's end to it, up to the first that is no good.

    Damaged bytes are copied aside, a good rest behind them into a segment of its own; cutting this
    segment at `end` is left to the caller.
    """
    fs = segment.storage.fs
    file = fs.open(segment.path)
    try:
        window = _Window(fs, file, segment.size)
        result = Scan(index.log_size)
        _walk(window, segment, index, trust, result)
        result.end = index.log_size
        result.bytes_read = window.bytes_read
        if result.end < segment.size:
            _judge(file, segment, index.next_offset, trust, result)
        elif index.next_offset < trust.synced and trust.following is None:
            # The file ends too early: nothing to keep aside, but something to tell.
            result.damage = Damage(segment.path, result.end, 0, index.next_offset, "")
        return result
    finally:
        fs.close(file)


def _walk(
    window: _Window, segment: Segment, index: SegmentIndex, trust: Trust, result: Scan
) -> None:
    while index.log_size + HEADER_SIZE <= segment.size:
        position = index.log_size
        checked = index.next_offset >= trust.crc_from
        ahead = SCAN_WINDOW_BYTES if checked else HEADER_WINDOW_BYTES
        header = read_header(window.get(position, HEADER_SIZE, ahead))
        if not _is_plausible(header, index.next_offset, segment.size - position):
            return
        if trust.following is not None and header.last_offset >= trust.following:
            return
        if header.last_offset >= trust.crc_from:
            batch = window.get(position, header.size, SCAN_WINDOW_BYTES)
            if batch_crc(batch) != header.crc:
                return
        index.add(span_of(position, header), segment.interval)
        if len(result.headers) <= REREAD_BATCHES_MAX:
            result.headers.append(header)
        if not result.epochs or header.leader_epoch > result.epochs[-1][0]:
            result.epochs.append((header.leader_epoch, header.base_offset))


def _is_plausible(header: BatchHeader, next_offset: int, room: int) -> bool:
    return (
        header.magic == MAGIC
        and HEADER_SIZE <= header.size <= room
        and 0 <= header.base_offset - next_offset <= RELATIVE_OFFSET_MAX
        and header.last_offset_delta >= 0
    )


def _judge(file: int, segment: Segment, expected: int, trust: Trust, result: Scan) -> None:
    """The batches stop before the file does: what are the bytes behind them?"""
    fs = segment.storage.fs
    found = find_batch(fs, file, segment.size, result.end, expected)
    if found is None and expected >= trust.synced:
        return  # A torn or zero-filled tail; nobody was told about it.
    stop = segment.size
    if found is not None and expected < trust.synced:
        stop, header = found
        # Behind a split that was interrupted lies a copy of the next segment: it may go.
        if trust.following is None or header.base_offset < trust.following:
            copy_range(fs, file, stop, segment.size, _path(segment, header.base_offset))
            result.split = header.base_offset
    if stop > result.end:
        kept_in = f"{segment.path}.{result.end}{DAMAGED_SUFFIX}"
        copy_range(fs, file, result.end, stop, kept_in)
        result.damage = Damage(segment.path, result.end, stop - result.end, expected, kept_in)


def _path(segment: Segment, base_offset: int) -> str:
    return segment_path(segment.directory, base_offset)


def find_batch(
    fs: FileSystem, file: int, size: int, position: int, expected: int
) -> tuple[int, BatchHeader] | None:
    """The first batch at or after `position` that is whole, intact and not before `expected`."""
    with closing(fs.map(file, size)) as data:
        at = data.find(_MAGIC_BYTE, position + MAGIC_OFFSET)
        while at >= 0:
            start = at - MAGIC_OFFSET
            header = _intact(data, start, expected)
            if header is not None:
                return start, header
            at = data.find(_MAGIC_BYTE, at + 1)
    return None


def _intact(data: mmap.mmap, start: int, expected: int) -> BatchHeader | None:
    if start + HEADER_SIZE > len(data):
        return None
    header = read_header(data[start : start + HEADER_SIZE])
    if not _is_plausible(header, expected, len(data) - start):
        return None
    return header if batch_crc(data[start : start + header.size]) == header.crc else None
