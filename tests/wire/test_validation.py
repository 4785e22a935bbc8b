"""What a broker refuses of a produced batch, with the codes that Apache Kafka answers."""

import contextlib
import struct
import tracemalloc
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clients.batches import DEFAULT_TIME_MS, Batch, old_message, varint

from chronik.model.errors import ErrorCode
from chronik.wire.records import HEADER, HEADER_SIZE, batch_crc, read_header
from chronik.wire.validation import BatchRefusedError, Rules, validate

NOW_MS = DEFAULT_TIME_MS
RULES = Rules(max_message_bytes=1_048_588)
COMPACTED = RULES._replace(compacted=True)
HOUR_MS = 3_600_000
NARROW = RULES._replace(timestamp_before_ms_max=HOUR_MS, timestamp_after_ms_max=HOUR_MS)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def batch(*values: bytes, **fields: Any) -> bytes:
    return Batch(values=values or (b"value",), **fields).encode()


def sealed(data: bytes) -> bytes:
    """The bytes with length and CRC that fit them."""
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, batch_crc(out))
    return bytes(out)


def with_records(
    records: bytes, count: int, attributes: int = 0, times: tuple[int, int] = (NOW_MS, NOW_MS)
) -> bytes:
    fields = (attributes, count - 1, *times, -1, -1, -1, count)
    return sealed(HEADER.pack(0, 0, -1, 2, 0, *fields) + records)


def keyed(offset_delta: int, time_delta: int = 0, key: bytes | None = b"k") -> bytes:
    body = b"\0" + varint(time_delta) + varint(offset_delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(1) + b"v" + varint(0)
    return varint(len(body)) + body


def refusal(data: bytes | None, rules: Rules = RULES, version: int = 12) -> BatchRefusedError:
    with pytest.raises(BatchRefusedError) as refused:
        validate(None if data is None else memoryview(bytearray(data)), version, rules, NOW_MS)
    return refused.value


def accepted(data: bytes, rules: Rules = RULES, version: int = 12) -> bytes:
    out, header = validate(memoryview(bytearray(data)), version, rules, NOW_MS)
    assert header == read_header(out)
    assert header.crc == batch_crc(out)
    return bytes(out)


GOOD = batch(b"one", b"two")
CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD

MALFORMED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, INVALID),
    "no bytes": (b"", INVALID),
    "too short for a magic byte": (GOOD[:16], CORRUPT),
    "shorter than a header": (GOOD[:60], CORRUPT),
    "cut at the end": (GOOD[:-1], INVALID),
    "magic 0": (old_message(0, b"value" * 20), INVALID),
    "magic 1": (old_message(1, b"value" * 20), INVALID),
    "magic 3": (batch(magic=3), CORRUPT),
    "magic -1": (batch(magic=-1), CORRUPT),
    "wrong crc": (batch(crc=1), CORRUPT),
    "one bit flipped in a value": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], CORRUPT),
    "two batches": (GOOD + GOOD, INVALID),
    "bytes behind the batch": (GOOD + b"\0" * 12, INVALID),
    "length 0": (batch(length=0), CORRUPT),
    "length 48, one less than the header": (batch(length=48), CORRUPT),
    "negative length": (batch(length=-1), CORRUPT),
    "smallest length": (batch(length=-(2**31)), CORRUPT),
    "largest length": (batch(length=2**31 - 1), INVALID),
    "no records": (batch(count=0, last_offset_delta=-1), INVALID),
    "negative count": (batch(count=-1, last_offset_delta=-2), INVALID),
    "count larger than the offsets": (batch(b"a", b"b", count=3), INVALID),
    "count smaller than the offsets": (batch(b"a", b"b", count=1), INVALID),
    "offset delta 0 with two records": (batch(b"a", b"b", last_offset_delta=0), INVALID),
    "offset delta huge": (batch(b"a", last_offset_delta=2**31 - 1), INVALID),
    "more records than bytes": (batch(b"a", count=1000, last_offset_delta=999), INVALID),
    "control batch": (batch(attributes=0x20), INVALID),
    "unknown codec": (batch(attributes=5), CORRUPT),
    "producer id without sequence": (batch(producer_id=1, producer_epoch=0), INVALID),
    "producer id without epoch": (batch(producer_id=1, sequence=0), INVALID),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_fm16_malformed_batches_get_their_code(case: str) -> None:
    data, code = MALFORMED[case]
    assert refusal(data).code is code


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("rules", [COMPACTED, NARROW, RULES._replace(log_append_time=True)])
def test_fm16_the_code_is_the_same_under_every_rule(case: str, rules: Rules) -> None:
    data, code = MALFORMED[case]
    assert refusal(data, rules).code is code


def test_a_good_batch_passes_unchanged() -> None:
    assert accepted(GOOD) == GOOD


def test_fm13_the_clients_base_offset_does_not_matter() -> None:
    for base_offset in (0, 77, -1, 2**62):
        accepted(batch(base_offset=base_offset))


def test_a_batch_may_be_as_large_as_the_topic_says() -> None:
    assert accepted(GOOD, Rules(max_message_bytes=len(GOOD))) == GOOD
    assert refusal(GOOD, Rules(max_message_bytes=len(GOOD) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    data = with_records(bytes(cramjam.zstd.compress(keyed(0))), 1, ZSTD)
    assert refusal(data, version=6).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    accepted(data, version=7)


def test_log_append_time_is_stamped_with_a_valid_crc() -> None:
    stamped = accepted(GOOD, RULES._replace(log_append_time=True))
    header = read_header(stamped)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS
    assert stamped[HEADER_SIZE:] == GOOD[HEADER_SIZE:]


@pytest.mark.parametrize("codec", [0, GZIP, LZ4, ZSTD])
def test_a_compacted_topic_needs_keys(codec: int) -> None:
    records = keyed(0) + keyed(1, key=None) + keyed(2, key=b"") + keyed(3, key=None)
    error = refusal(with_records(squeeze(codec, records), 4, codec), COMPACTED)
    assert error.code is INVALID
    assert [index for index, _ in error.records] == [1, 3]
    accepted(with_records(squeeze(codec, keyed(0) + keyed(1)), 2, codec), COMPACTED)


def squeeze(codec: int, records: bytes) -> bytes:
    ways = {GZIP: cramjam.gzip.compress, LZ4: cramjam.lz4.compress, ZSTD: cramjam.zstd.compress}
    return bytes(ways[codec](records)) if codec else records


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_compressed_garbage_is_corrupt_where_records_are_looked_at(codec: int) -> None:
    assert refusal(with_records(b"\xff" * 40, 1, codec), COMPACTED).code is CORRUPT


@pytest.mark.parametrize("off_ms", [-HOUR_MS - 1, HOUR_MS + 1])
def test_a_timestamp_outside_the_limits_is_refused_with_its_record(off_ms: int) -> None:
    times = (min(NOW_MS, NOW_MS + off_ms), max(NOW_MS, NOW_MS + off_ms))
    first, second = NOW_MS - times[0], NOW_MS + off_ms - times[0]
    data = with_records(keyed(0, first) + keyed(1, second), 2, times=times)
    error = refusal(data, NARROW)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.records] == [1]


def test_timestamps_at_the_limits_pass() -> None:
    times = (NOW_MS - HOUR_MS, NOW_MS + HOUR_MS)
    accepted(with_records(keyed(0) + keyed(1, 2 * HOUR_MS), 2, times=times), NARROW)


def test_no_timestamp_is_no_wrong_timestamp() -> None:
    accepted(with_records(keyed(0), 1, times=(-1, -1)), NARROW)


def test_log_append_time_overrules_the_limits() -> None:
    accepted(batch(time_ms=0), NARROW._replace(log_append_time=True))


def test_fm17_a_compression_bomb_costs_little_memory() -> None:
    """A few kilobytes that unpack to millions of records without a key."""
    count = 400_000
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0)
    records = (varint(len(body)) + body) * count
    data = with_records(bytes(cramjam.zstd.compress(records)), count, ZSTD)
    assert len(data) < 10_000
    tracemalloc.start()
    try:
        error = refusal(data, COMPACTED)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.code is INVALID
    assert len(error.records) <= 1000, "the answer stays small"
    assert peak < 8 * len(records)


@given(st.data())
def test_fm16_any_changed_byte_that_matters_is_noticed(data: st.DataObject) -> None:
    """Base offset and leader epoch are the broker's to write; every other byte is covered."""
    covered = [n for n in range(len(GOOD)) if not (n < 8 or 12 <= n < 16)]
    position = data.draw(st.sampled_from(covered))
    flipped = bytearray(GOOD)
    flipped[position] ^= data.draw(st.integers(1, 255))
    assert refusal(bytes(flipped)).code in {CORRUPT, INVALID, ErrorCode.MESSAGE_TOO_LARGE}


@given(
    st.binary(max_size=200),
    st.integers(0, 255),
    st.integers(1, 2**31 - 1),
    st.sampled_from([RULES, COMPACTED, NARROW]),
)
def test_any_records_with_a_valid_crc_are_taken_or_refused(
    records: bytes, attributes: int, count: int, rules: Rules
) -> None:
    data = with_records(records, count, attributes, times=(0, 2**62))
    with contextlib.suppress(BatchRefusedError):
        accepted(data, rules)
