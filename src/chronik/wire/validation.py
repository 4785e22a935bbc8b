"""What a produced batch must be before it may have offsets, judged as Kafka judges it.

The header and the CRC settle nearly everything; the records inside are looked at only where a
topic's rules speak of single records (compacted topics, timestamp limits, another codec).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from chronik.model.crc import crc32c
from chronik.model.errors import ErrorCode
from chronik.model.limits import RECORD_ERRORS_MAX
from chronik.wire.record_iter import CorruptRecords, Record, iter_records
from chronik.wire.records import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    BatchHeader,
    batch_crc,
    patch_append_time,
    read_header,
)

ZSTD = 4
ZSTD_FROM_PRODUCE_VERSION = 7
RECORD_BYTES_MIN = 7
"""The shortest record: length, attributes, two deltas, two lengths, header count."""


class Rules(NamedTuple):
    """What one topic asks of a batch."""

    max_message_bytes: int
    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_ms_max: int = 2**63 - 1
    timestamp_after_ms_max: int = 2**63 - 1


class BatchRefusedError(Exception):
    """The batch is not taken; `code`, message and the records at fault go to its producer."""

    def __init__(
        self, code: ErrorCode, message: str, records: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.records = records


def validate(
    records: memoryview | None, version: int, rules: Rules, now_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The one batch of a produced partition, checked; stamped where the topic says so."""
    if not records:
        raise _invalid("a produce request must have one record batch per partition")
    if len(records) <= MAGIC_OFFSET:
        raise _corrupt(f"{len(records)} bytes are too few for a record batch")
    if records[MAGIC_OFFSET] > MAGIC:
        raise _corrupt(f"no record batch has magic {records[MAGIC_OFFSET]}")
    if records[MAGIC_OFFSET] != MAGIC:
        raise _invalid(
            f"record batches must have magic {MAGIC}, this one has {records[MAGIC_OFFSET]}: "
            "use a client of Kafka 0.11 or newer"
        )
    if len(records) < HEADER_SIZE:
        raise _corrupt(f"{len(records)} bytes are too few for a record batch")
    header = read_header(records)
    _check_header(records, header, version, rules)
    if rules.log_append_time:
        patch_append_time(records, now_ms)
        header = read_header(records)
    elif not (
        header.max_timestamp <= now_ms + rules.timestamp_after_ms_max
        and header.base_timestamp >= now_ms - rules.timestamp_before_ms_max
    ):
        _check_timestamps(records, header, rules, now_ms)
    if rules.compacted:
        _check_keys(records)
    return records, header


def _check_header(records: memoryview, header: BatchHeader, version: int, rules: Rules) -> None:
    """A good batch passes in one expression; what is wrong with another is found out after."""
    _, length, _, _, crc, attributes, delta, _, _, producer_id, epoch, sequence, count = header
    size = length + LENGTH_OVERHEAD
    if not (
        size == len(records) <= rules.max_message_bytes
        and crc32c(records[CRC_START:]) == crc
        and delta == count - 1 >= 0
        and not attributes & ~(CODEC_MASK | LOG_APPEND_TIME_FLAG | DELETE_HORIZON_FLAG)
        and ((attributes & CODEC_MASK) < ZSTD or version >= ZSTD_FROM_PRODUCE_VERSION)
        and (attributes & CODEC_MASK) <= ZSTD
        and (attributes & CODEC_MASK or size - HEADER_SIZE >= count * RECORD_BYTES_MIN)
        and (producer_id < 0 or (epoch >= 0 and sequence >= 0))
    ):
        _explain(records, header, version, rules)


def _explain(records: memoryview, header: BatchHeader, version: int, rules: Rules) -> None:
    """Raises what is wrong, in the order in which Kafka would notice it."""
    if header.size < HEADER_SIZE:
        raise _corrupt(f"the batch says {header.size} bytes, fewer than its header has")
    if header.size > len(records):
        raise _invalid(f"the batch says {header.size} bytes, {len(records)} came")
    if header.size < len(records):
        raise _invalid("a produce request must have exactly one record batch per partition")
    if header.size > rules.max_message_bytes:
        raise BatchRefusedError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, the topic takes {rules.max_message_bytes}: "
            "raise max.message.bytes or send smaller batches",
        )
    if batch_crc(records) != header.crc:
        raise _corrupt("the batch's CRC does not match its bytes")
    _check_counts(records, header)
    if header.codec > ZSTD:
        raise _corrupt(f"unknown compression codec {header.codec}")
    if header.codec == ZSTD and version < ZSTD_FROM_PRODUCE_VERSION:
        raise BatchRefusedError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7 or newer"
        )
    _check_origin(header)


def _check_counts(records: memoryview, header: BatchHeader) -> None:
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"the batch says {header.record_count} records but its offsets span "
            f"{header.last_offset_delta + 1}"
        )
    if header.codec == 0 and len(records) - HEADER_SIZE < header.record_count * RECORD_BYTES_MIN:
        raise _invalid(f"{header.record_count} records do not fit into the batch's bytes")


def _check_origin(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("clients are not allowed to write control batches")
    if header.is_transactional:
        raise BatchRefusedError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid("a batch with a producer id needs an epoch and a sequence number")


def _check_timestamps(records: memoryview, header: BatchHeader, rules: Rules, now_ms: int) -> None:
    newest = now_ms + rules.timestamp_after_ms_max
    oldest = now_ms - rules.timestamp_before_ms_max
    if header.max_timestamp <= newest and (
        header.base_timestamp >= oldest or header.base_timestamp == NO_TIMESTAMP
    ):
        return
    wrong = _first(
        (index, f"timestamp {record.timestamp} of the record is out of range [{oldest}, {newest}]")
        for index, record in enumerate(_records(records))
        if record.timestamp != NO_TIMESTAMP and not oldest <= record.timestamp <= newest
    )
    if wrong:
        raise BatchRefusedError(
            ErrorCode.INVALID_TIMESTAMP,
            "one or more records have timestamps that the topic does not take",
            wrong,
        )


def _check_keys(records: memoryview) -> None:
    keyless = _first(
        (index, "compacted topic cannot accept a record without key")
        for index, record in enumerate(_records(records))
        if record.key is None
    )
    if keyless:
        raise BatchRefusedError(
            ErrorCode.INVALID_RECORD,
            "one or more records have no key, which a compacted topic needs",
            keyless,
        )


def _first(faults: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    return tuple(islice(faults, RECORD_ERRORS_MAX))


def _records(batch: memoryview) -> Iterator[Record]:
    try:
        yield from iter_records(batch)
    except CorruptRecords as error:
        raise _corrupt(str(error)) from error


def _invalid(message: str) -> BatchRefusedError:
    return BatchRefusedError(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> BatchRefusedError:
    return BatchRefusedError(ErrorCode.CORRUPT_MESSAGE, message)
