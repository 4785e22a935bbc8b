"""Records straight from a node's segment files, where its data directory can be reached.

Segments hold the bytes that Fetch answers with, so the rows are the same, and the broker does no
work. Only what lies below the high watermark is read, as the node itself wrote it to its checkpoint
(`high-watermarks`; Kafka's is `replication-offset-checkpoint`): below its own high watermark a
replica's log never changes, be it leader or follower. What is newer, and what retention or
compaction takes away meanwhile, comes by Fetch.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from chronik.model.crc import crc32c
from chronik.pipeline.decode import Aborted
from chronik.pipeline.fetch_answer import FetchAnswer
from chronik.wire.record_iter import iter_records
from chronik.wire.records import HEADER_SIZE, BatchHeader, read_header

CHECKPOINT, KAFKA_CHECKPOINT = "high-watermarks", "replication-offset-checkpoint"
READ_BYTES_MAX = 16 * 1024 * 1024
_SEGMENT = re.compile(r"(\d{20})\.log")
_ABORT_MARKER = 0


def high_watermark(directory: Path, topic: str, partition: int) -> int:
    """What the node's checkpoint says; 0 where there is none that can be trusted."""
    lines = _chronik_lines(directory) or _kafka_lines(directory)
    return lines.get((topic, partition), 0)


def _chronik_lines(directory: Path) -> dict[tuple[str, int], int]:
    try:
        body, _, tail = (directory / CHECKPOINT).read_bytes().rpartition(b"crc32c ")
    except OSError:
        return {}
    if tail != b"%08x\n" % crc32c(body):
        return {}
    found = {}
    for line in body.decode().splitlines()[2:]:
        name, _, offset = line.rpartition(" ")
        topic, _, partition = name.rpartition("-")
        found[topic, int(partition)] = int(offset)
    return found


def _kafka_lines(directory: Path) -> dict[tuple[str, int], int]:
    try:
        lines = (directory / KAFKA_CHECKPOINT).read_text().splitlines()
    except OSError:
        return {}
    rows = [line.split(" ") for line in lines[2:]]
    whole = len(lines) >= 2 and len(rows) == int(lines[1])
    return {(topic, int(number)): int(offset) for topic, number, offset in rows} if whole else {}


def local_answers(
    directories: Iterable[str], place: tuple[str, int], start: int, end: int, *, committed: bool
) -> Iterator[tuple[int, FetchAnswer]]:
    """(offset, records) as Fetch would give them, as far as the files of one node go."""
    known = [(high_watermark(Path(one), *place), one) for one in directories]
    watermark, directory = max(known, default=(0, ""))
    folder = _folder(Path(directory), f"{place[0]}-{place[1]}")
    end = min(end, watermark)
    if folder is None or start >= end:
        return
    aborted = list(_aborted(folder, start, end, watermark)) if committed else []
    for offset, data in _chunks(folder, start, end):
        # As in a Fetch answer: only the transactions that did not end before.
        open_here = [one for marker, one in aborted if marker >= offset]
        yield offset, FetchAnswer(0, found=True, aborted=open_here, records=memoryview(data))


def _folder(directory: Path, name: str) -> Path | None:
    """Chronik keeps its logs in `topics`, Kafka in the data directory itself."""
    places = (directory / "topics" / name, directory / name)
    return next((one for one in places if one.is_dir()), None)


# -- files


class _Segment:
    """One open file: what is renamed or removed under it stays readable."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)

    def header(self, position: int) -> BatchHeader | None:
        """None where no whole batch begins."""
        data = os.pread(self._descriptor, HEADER_SIZE, position)
        if len(data) < HEADER_SIZE:
            return None
        header = read_header(data)
        if header.size < HEADER_SIZE or position + header.size > self.size:
            return None
        return header

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)


def _segments(folder: Path, start: int) -> Iterator[tuple[int, _Segment]]:
    """(base offset, file) from the one that holds `start` on."""
    found = sorted(
        int(match[1]) for one in folder.iterdir() if (match := _SEGMENT.fullmatch(one.name))
    )
    first = max((base for base in found if base <= start), default=None)
    for base in found:
        if first is not None and base >= first:
            segment = _Segment(folder / f"{base:020d}.log")
            try:
                yield base, segment
            finally:
                segment.close()


def _batches(folder: Path, start: int) -> Iterator[tuple[_Segment, int, BatchHeader | None]]:
    """(file, position, header) of the batches from `start` on, while they follow each other.

    Each file ends with a header of None: after that it is closed.

    Inside a file a missing offset is a hole that compaction left: the header of the batch before or
    after tells. Between files there is none, because compaction keeps a log's last batch: so a
    file that does not go on where the one before ended means that one is missing just now.
    """
    following = None
    try:
        for base, segment in _segments(folder, start):
            if following is not None and base != following:
                return
            following, position = base, 0
            while (header := segment.header(position)) is not None:
                following = header.next_offset
                if following > start:
                    yield segment, position, header
                position += header.size
            yield segment, position, None
    except FileNotFoundError:  # retention was faster
        return


def _chunks(folder: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """(offset, whole batches one after the other), some MiB at a time."""
    first, size, offset, following = 0, 0, start, start
    for segment, position, header in _batches(folder, start):
        is_last = header is None or header.base_offset >= end
        if size and (is_last or size + (header.size if header else 0) > READ_BYTES_MAX):
            yield offset, segment.read(first, size)
            size, offset = 0, following
        if header is not None:
            if is_last:
                return
            first = first if size else position
            size, following = size + header.size, header.next_offset


# -- transactions


def _aborted(folder: Path, start: int, end: int, watermark: int) -> Iterator[tuple[int, Aborted]]:
    """The aborted transactions with records in the range, and the offsets of their markers.

    A marker may lie behind the range, but not behind the high watermark: the range ends at or
    before the last stable offset.
    """
    begun: dict[int, int] = {}
    for segment, position, header in _batches(folder, start):
        if header is None:
            continue
        if header.base_offset >= watermark or (header.base_offset >= end and not begun):
            return
        if header.is_control:
            first = begun.pop(header.producer_id, None)
            if first is not None and _kind(segment, position, header) == _ABORT_MARKER:
                yield header.base_offset, Aborted(header.producer_id, first)
        elif header.is_transactional and header.base_offset < end:
            begun.setdefault(header.producer_id, header.base_offset)


def _kind(segment: _Segment, position: int, header: BatchHeader) -> int:
    record = next(iter_records(segment.read(position, header.size)))
    return int.from_bytes((record.key or b"")[2:4], "big")
