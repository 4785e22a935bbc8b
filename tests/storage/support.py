"""Batches, logs and a driver for the storage tests."""

import struct
from collections.abc import Callable, Iterable, Sequence

import cramjam

from chronik.sim.disk import SimDisk
from chronik.storage.append import Appendable
from chronik.storage.directory import create_log_directory
from chronik.storage.fs import FileSystem
from chronik.storage.log import Log
from chronik.storage.operations import Operation
from chronik.storage.recovery import RecoveryReport, recover
from chronik.storage.segment import LogConfig, Storage
from chronik.storage.write import Write
from chronik.wire.records import HEADER, BatchHeader, batch_crc, scan

DIRECTORY = "/data/orders-0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)
NOW = 1_700_000_000_000

CODECS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda data: bytes(cramjam.gzip.compress(data)),
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(
    offset_delta: int,
    timestamp_delta: int,
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value)
    body += varint(len(headers))
    for name, content in headers:
        body += field(name.encode()) + field(content)
    return varint(len(body)) + body


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    base_offset: int,
    timestamps: Sequence[int] = (NOW,),
    *,
    value: bytes = b"value",
    epoch: int = 0,
    codec: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compress: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """One whole batch, one record per timestamp."""
    first = timestamps[0]
    records = b"".join(record(i, time - first, value) for i, time in enumerate(timestamps))
    return raw_batch(
        base_offset,
        (compress or CODECS[codec])(records),
        len(timestamps),
        times=(first, max(timestamps)),
        epoch=epoch,
        attributes=attributes | codec,
        producer=producer,
    )


def raw_batch(
    base_offset: int,
    records: bytes,
    count: int,
    *,
    times: tuple[int, int] = (NOW, NOW),
    epoch: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    length = HEADER.size + len(records) - 12
    fields = (attributes, count - 1, *times, *producer, count)
    data = bytearray(HEADER.pack(base_offset, length, epoch, 2, 0, *fields) + records)
    struct.pack_into(">I", data, 17, batch_crc(data))
    return bytes(data)


def appendable(data: bytes) -> Appendable:
    headers = [header for _, header in scan(data)]
    return Appendable(
        memoryview(data),
        headers[0].base_offset,
        headers[-1].last_offset,
        max(header.max_timestamp for header in headers),
        headers[0].leader_epoch,
        len(data),
    )


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir("/data")
    disk.fsync_dir("/")
    create_log_directory(disk, DIRECTORY)
    return disk


def open_log(
    fs: FileSystem,
    config: LogConfig = SMALL,
    recovery_point: int = 0,
    *,
    directory: str = DIRECTORY,
    verify: bool = False,
) -> tuple[Log, RecoveryReport]:
    return recover(Storage(fs), directory, config, recovery_point, verify=verify)


def append(log: Log, *batches: bytes, sync: bool = True) -> Write:
    write = log.prepare([appendable(data) for data in batches], NOW)
    try:
        write.execute(sync)
    except OSError:
        log.abort(write)
        raise
    log.apply(write)
    return write


def run(log: Log, operation: Operation | None) -> None:
    assert operation is not None
    assert not isinstance(operation, Write)
    try:
        operation.execute()
    except OSError:
        log.abort(operation)
        raise
    log.apply(operation)


def fill(log: Log, count: int, *, value: bytes = b"x" * 60, sync: bool = True) -> list[bytes]:
    """Appends `count` batches of one record, a millisecond apart."""
    made = []
    for _ in range(count):
        made.append(batch(log.end_offset, [NOW + log.end_offset], value=value))
        append(log, made[-1], sync=sync)
    return made


def read_all(log: Log, end_offset: int | None = None, max_bytes: int = 300) -> bytes:
    """Reads as a consumer does: whole batches, from one fetch to the next."""
    end = log.end_offset if end_offset is None else end_offset
    offset, out = log.start_offset, bytearray()
    while offset < end:
        found = log.read(offset, max_bytes, end, at_least_one_batch=True)
        data = b"".join(found.slices)
        assert len(data) == found.size
        whole = list(scan(data))
        if not whole:
            break
        position, header = whole[-1]
        out += data[: position + header.size]
        offset = header.next_offset
    return bytes(out)


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in scan(data)]


def offsets_of(data: bytes) -> list[int]:
    return [header.base_offset for header in headers_of(data)]


def joined(batches: Iterable[bytes]) -> bytes:
    return b"".join(batches)
