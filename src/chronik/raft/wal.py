"""The format of the durable log, apart from any file: frames, what is in them, what a crash leaves.

    frame    | magic 4 | length u32 | sequence u64 | payload crc u32 | header crc u32 |
             | payload | 0xC5 |
    payload  record, record, ...
    record   | type u8 | entry, hard state, or snapshot mark (index u64, term u64) |

One save is one frame, so it is there as a whole or not at all. Frames are numbered without a gap.

What a crash may leave (assumption: sectors of 512 bytes are written whole or not at all, and what
was never written reads as zeros or is past the end of the file): a last frame that lacks sectors
or its end, which is never zero. It was not acknowledged and is cut. Anything else that does not
check is damage to bytes that were promised to be durable: a frame with all its sectors and a wrong
CRC, or a bad frame with a good one after it. A node with such a log may have forgotten a vote and
must not take part.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from chronik.model.crc import crc32c
from chronik.raft.codec import (
    CodecError,
    Reader,
    encode_entry,
    encode_hard_state,
    read_entry,
    read_hard_state,
)
from chronik.raft.messages import Entry, HardState

MAGIC: Final = b"CrWL"
TRAILER: Final = b"\xc5"
SECTOR_BYTES: Final = 512
PAYLOAD_BYTES_MAX: Final = 1 << 30

_HEAD = struct.Struct(">4sIQI")
_CRC = struct.Struct(">I")
_TYPE = struct.Struct(">B")
_MARK = struct.Struct(">QQ")
HEADER_BYTES: Final = _HEAD.size + _CRC.size


NOTHING_PROMISED: Final = HardState()


class RecordType(IntEnum):
    """What a record is."""

    ENTRY = 1
    """Replaces the entry of its index and removes all after it."""
    HARD_STATE = 2
    SNAPSHOT_TAKEN = 3
    """A snapshot of this node: entries up to it are no longer needed."""
    SNAPSHOT_INSTALLED = 4
    """A leader's snapshot: it replaces the whole log."""


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """Which snapshot file belongs to the log."""

    index: int
    term: int


class Frame(NamedTuple):
    """One save."""

    position: int
    sequence: int
    payload: bytes


class Scan(NamedTuple):
    """What was found in one segment."""

    frames: list[Frame]
    size: int
    """Where the last good frame ends."""
    problem: str
    """Why the rest is no frame; empty if there is no rest."""
    is_torn: bool
    """True if the rest is an unfinished write; else it is damage."""


def entry_record(entry: Entry) -> bytes:
    """An entry to write."""
    return _TYPE.pack(RecordType.ENTRY) + encode_entry(entry)


def hard_state_record(state: HardState) -> bytes:
    """A hard state to write."""
    return _TYPE.pack(RecordType.HARD_STATE) + encode_hard_state(state)


def mark_record(mark: SnapshotMark, *, installed: bool) -> bytes:
    """A snapshot mark to write."""
    kind = RecordType.SNAPSHOT_INSTALLED if installed else RecordType.SNAPSHOT_TAKEN
    return _TYPE.pack(kind) + _MARK.pack(mark.index, mark.term)


def encode_frame(sequence: int, records: Iterable[bytes]) -> bytes:
    """One save as it goes to the file."""
    payload = b"".join(records)
    assert len(payload) <= PAYLOAD_BYTES_MAX
    head = _HEAD.pack(MAGIC, len(payload), sequence, crc32c(payload))
    return head + _CRC.pack(crc32c(head)) + payload + TRAILER


def scan(data: bytes, first_sequence: int) -> Scan:
    """All frames of a segment, and a judgement on what follows them."""
    frames: list[Frame] = []
    position = 0
    while position < len(data):
        sequence = first_sequence + len(frames)
        frame = _frame_at(data, position)
        if frame is None:
            problem, is_torn = _judge(data, position)
            return Scan(frames, position, problem, is_torn)
        if frame.sequence != sequence:
            problem = f"frame {frame.sequence} where {sequence} was due"
            return Scan(frames, position, problem, is_torn=False)
        frames.append(frame)
        position += HEADER_BYTES + len(frame.payload) + 1
    return Scan(frames, position, "", is_torn=False)


def _header_at(data: bytes, position: int) -> tuple[int, int, int] | None:
    """Length, sequence and payload CRC, if a whole header is there."""
    if position + HEADER_BYTES > len(data):
        return None
    magic, length, sequence, payload_crc = _HEAD.unpack_from(data, position)
    (header_crc,) = _CRC.unpack_from(data, position + _HEAD.size)
    if magic != MAGIC or header_crc != crc32c(data[position : position + _HEAD.size]):
        return None
    return length, sequence, payload_crc


def _frame_at(data: bytes, position: int) -> Frame | None:
    header = _header_at(data, position)
    if header is None:
        return None
    length, sequence, payload_crc = header
    start = position + HEADER_BYTES
    payload = data[start : start + length]
    trailer = data[start + length : start + length + 1]
    if len(payload) < length or trailer != TRAILER or crc32c(payload) != payload_crc:
        return None
    return Frame(position, sequence, payload)


def _judge(data: bytes, position: int) -> tuple[str, bool]:
    """Says of bytes that are no frame whether an unfinished write explains them."""
    later = _next_frame(data, position + 1)
    if later is not None:
        return f"no frame, yet frame {later.sequence} follows at {later.position}", False
    header = _header_at(data, position)
    if header is None:
        end = position + HEADER_BYTES
        if end > len(data) or data[-1] == 0 or _lacks_sector(data, position, end):
            return "unfinished header", True
        return "header checksum does not match", False
    end = position + HEADER_BYTES + header[0] + 1
    if end > len(data) or data[end - 1] == 0 or _lacks_sector(data, position, end):
        return "unfinished frame", True
    return "frame checksum does not match", False


def _next_frame(data: bytes, position: int) -> Frame | None:
    while (position := data.find(MAGIC, position)) >= 0:
        frame = _frame_at(data, position)
        if frame is not None:
            return frame
        position += 1
    return None


def _lacks_sector(data: bytes, position: int, end: int) -> bool:
    """True if the part of some sector between the two positions is all zeros."""
    while position < end:
        sector_end = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(data[position:sector_end]):
            return True
        position = sector_end
    return False


@dataclass(slots=True)
class Replay:
    """What the records say, played in their order."""

    hard_state: HardState = NOTHING_PROMISED
    mark: SnapshotMark | None = None
    entries: list[Entry] = field(default_factory=list)

    def play(self, payload: bytes) -> int:
        """One frame's records; returns the highest entry index among them (0: none)."""
        reader = Reader(payload)
        highest = 0
        while reader.position < len(payload):
            (kind,) = reader.take(_TYPE)
            if kind == RecordType.ENTRY:
                entry = read_entry(reader)
                self._put(entry)
                highest = max(highest, entry.index)
            elif kind == RecordType.HARD_STATE:
                self.hard_state = read_hard_state(reader)
            else:
                self._mark(kind, reader)
        return highest

    def _put(self, entry: Entry) -> None:
        if self.entries:
            first, last = self.entries[0].index, self.entries[-1].index
            if first <= entry.index <= last + 1:
                del self.entries[entry.index - first :]
            else:
                # Segments before this one were compacted; the last mark tells whether it fits.
                self.entries.clear()
        self.entries.append(entry)

    def _mark(self, kind: int, reader: Reader) -> None:
        index, term = reader.take(_MARK)
        self.mark = SnapshotMark(index, term)
        if kind == RecordType.SNAPSHOT_INSTALLED:
            self.entries.clear()
        elif kind == RecordType.SNAPSHOT_TAKEN:
            self._drop_to(index)
        else:
            raise CodecError(f"record type {kind} is unknown")

    def _drop_to(self, index: int) -> None:
        if self.entries and index >= self.entries[0].index:
            del self.entries[: index - self.entries[0].index + 1]


def check(replay: Replay) -> str:
    """Why log, hard state and snapshot cannot belong together; empty if they can."""
    entries = replay.entries
    base = replay.mark.index if replay.mark is not None else 0
    if entries and entries[0].index != base + 1:
        return f"entries start at {entries[0].index}, the snapshot ends at {base}"
    last = entries[-1].index if entries else base
    if replay.hard_state.commit > last:
        return f"commit {replay.hard_state.commit} is past the last entry {last}"
    last_term = (
        entries[-1].term if entries else (replay.mark.term if replay.mark is not None else 0)
    )
    if last_term > replay.hard_state.term:
        return f"an entry of term {last_term}, the node was in {replay.hard_state.term}"
    return ""
