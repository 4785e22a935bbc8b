"""Bytes to Arrow: the same records as the plain reader finds, whatever the batches look like."""

import contextlib
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.batches import ABORT, COMMIT, Row, batch, marker

from chronik.pipeline.decode import COLUMNS, SCHEMA, Aborted, decode, next_offset
from chronik.pipeline.varints import read_varints
from chronik.wire.record_iter import CorruptRecords, iter_records
from chronik.wire.records import HEADER, batch_crc

np = pytest.importorskip("numpy")

blobs = st.none() | st.binary(max_size=200) | st.binary(min_size=60, max_size=70)
header = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
rows = st.builds(
    Row, blobs, blobs, st.lists(header, max_size=3), st.integers(-5, 1 << 40), st.none()
)
batch_args = st.tuples(st.lists(rows, min_size=1, max_size=70), st.integers(0, 4), st.booleans())


def log_of(args: list[tuple[list[Row], int, bool]], first: int = 0) -> list[bytes]:
    found, offset = [], first
    for many, codec, append_time in args:
        found.append(batch(many, offset, codec=codec, append_time=append_time))
        offset += len(many)
    return found


@settings(max_examples=60)
@given(st.lists(batch_args, min_size=1, max_size=4), st.integers(0, 1 << 40), st.data())
def test_the_columns_hold_what_the_plain_reader_finds(
    args: list[tuple[list[Row], int, bool]], first: int, data: st.DataObject
) -> None:
    log = log_of(args, first)
    total = sum(len(many) for many, _, _ in args)
    start = data.draw(st.integers(first, first + total))
    end = data.draw(st.integers(start, first + total))

    decoded = decode(b"".join(log), "t", 7, start=start, end=end)

    decoded.validate(full=True)
    expected = [
        {
            "key": r.key,
            "value": r.value,
            "topic": "t",
            "partition": 7,
            "offset": r.offset,
            "timestamp": r.timestamp * 1000,
            "timestampType": int(args[index][2]),
            "headers": [{"key": k, "value": v} for k, v in r.headers] or None,
        }
        for index, one in enumerate(log)
        for r in iter_records(one)
        if start <= r.offset < end
    ]
    at = SCHEMA.get_field_index("timestamp")
    numbers = decoded.set_column(at, "timestamp", decoded.column(at).cast("int64"))
    assert numbers.to_pylist() == expected


@settings(max_examples=20)
@given(st.integers(0, 1 << 32), st.booleans())
def test_many_batches_in_one_answer_are_walked_in_step(seed: int, odd: bool) -> None:
    chance = random.Random(seed)
    log, offset = [], 0
    for number in range(60):
        count = chance.choice([1, 2, 5, 5, 5, 6, 40])
        sizes = [chance.choice([0, 30, 60, 130, 9_000 if odd else 7_000]) for _ in range(count)]
        many = [
            Row(b"k" * (size % 7), chance.randbytes(size), (), size << number % 30)
            for size in sizes
        ]
        if odd and number % 9 == 0:
            many.append(Row(None, None, [("h", b"v")] * chance.randrange(100)))
        log.append(batch(many, offset))
        offset += len(many)
    decoded = decode(b"".join(log), "t", 0, columns=("offset", "key", "value", "timestamp"))
    expected = [r for one in log for r in iter_records(one)]
    assert decoded.column("offset").to_pylist() == list(range(offset))
    assert decoded.column("key").to_pylist() == [r.key for r in expected]
    assert decoded.column("value").to_pylist() == [r.value for r in expected]
    times = decoded.column("timestamp").view(pa.int64()).to_pylist()
    assert times == [r.timestamp * 1000 for r in expected]


@settings(max_examples=40)
@given(st.lists(batch_args, min_size=1, max_size=4), st.booleans(), st.data())
def test_the_headers_alone_give_the_same_rows_as_the_records(
    args: list[tuple[list[Row], int, bool]], holes: bool, data: st.DataObject
) -> None:
    log = log_of(args)
    if holes:
        log.append(batch([Row(b"a", b"1", (), 0, 3), Row(b"b", b"2", (), 0, 9)], 1_000))
    start = data.draw(st.integers(0, 1_011))
    end = data.draw(st.integers(start, 1_011))
    few = ("offset", "partition", "timestampType")
    whole = decode(b"".join(log), "t", 3, start=start, end=end)
    pruned = decode(b"".join(log), "t", 3, start=start, end=end, columns=few)
    assert pruned.to_pylist() == whole.select(list(few)).to_pylist()


def test_a_count_does_not_decompress() -> None:
    """The codec of these records is not even known."""
    data = bytearray(batch([Row(b"k", b"v")] * 3, 5))
    fields = list(HEADER.unpack_from(data))
    fields[5] |= 7
    HEADER.pack_into(data, 0, *fields)
    fields[4] = batch_crc(data)
    HEADER.pack_into(data, 0, *fields)
    assert decode(bytes(data), "t", 0, columns=("partition",)).num_rows == 3
    with pytest.raises(CorruptRecords):
        decode(bytes(data), "t", 0)


def test_columns_that_are_not_asked_for_are_not_made() -> None:
    data = batch([Row(b"k", b"v")], 5)
    assert decode(data, "t", 0, columns=("offset", "value")).to_pylist() == [
        {"offset": 5, "value": b"v"}
    ]


def test_records_of_every_size_are_found() -> None:
    sizes = [0, 1, 50, 57, 58, 59, 120, 121, 8_180, 8_190, 8_200, 70_000, 3]
    data = batch([Row(None, b"x" * size) for size in sizes])
    decoded = decode(data, "t", 0, columns=("value",)).column(0).to_pylist()
    assert [len(value or b"") for value in decoded] == sizes


def test_an_empty_record_at_the_very_end_is_refused() -> None:
    """Its length is the buffer's last byte: nothing may be read after it."""
    data = bytearray(batch([Row(b"k", b"v")]))
    fields = list(HEADER.unpack_from(data))
    data.append(0)
    fields[1], fields[12], fields[4] = fields[1] + 1, 2, 0
    HEADER.pack_into(data, 0, *fields)
    fields[4] = batch_crc(data)
    HEADER.pack_into(data, 0, *fields)
    with pytest.raises(CorruptRecords):
        decode(bytes(data), "t", 0)


def test_no_bytes_are_no_rows() -> None:
    decoded = decode(b"", "t", 0)
    assert decoded.num_rows == 0
    assert decoded.schema.names == list(COLUMNS)


def test_a_torn_last_batch_is_left_for_the_next_fetch() -> None:
    whole, torn = batch([Row(b"a", b"1")], 0), batch([Row(b"b", b"2")], 1)
    data = whole + torn[:-1]
    assert decode(data, "t", 0, columns=("offset",)).to_pylist() == [{"offset": 0}]
    assert next_offset(data, 0) == 1


def test_compaction_holes_move_the_position_by_the_batch_header() -> None:
    data = batch([Row(b"a", b"1", (), 0, 3), Row(b"b", b"2", (), 0, 40)], 100)
    assert [row["offset"] for row in decode(data, "t", 0).to_pylist()] == [103, 140]
    assert next_offset(data, 100) == 141


def test_markers_and_aborted_transactions_are_left_out() -> None:
    log = [
        batch([Row(None, b"aborted")], 0, producer_id=1, transactional=True),
        batch([Row(None, b"kept 1")], 1, producer_id=2, transactional=True),
        marker(ABORT, 2, 1),
        batch([Row(None, b"kept 2")], 3, producer_id=1, transactional=True),
        marker(COMMIT, 4, 1),
        marker(COMMIT, 5, 2),
        batch([Row(None, b"kept 3")], 6),
    ]
    values = decode(b"".join(log), "t", 0, columns=("value",), aborted=[Aborted(1, 0)])
    assert values.column(0).to_pylist() == [b"kept 1", b"kept 2", b"kept 3"]


def test_a_marker_before_the_start_still_ends_its_transaction() -> None:
    log = [
        batch([Row(None, b"aborted")], 0, producer_id=1, transactional=True),
        marker(ABORT, 1, 1),
        batch([Row(None, b"kept")], 2, producer_id=1, transactional=True),
    ]
    values = decode(b"".join(log), "t", 0, start=2, columns=("value",), aborted=[Aborted(1, 0)])
    assert values.column(0).to_pylist() == [b"kept"]


@settings(max_examples=150)
@given(st.lists(rows, min_size=1, max_size=5), st.integers(0, 4), st.data())
def test_damage_is_refused_and_never_decoded(
    many: list[Row], codec: int, data: st.DataObject
) -> None:
    good = bytearray(batch(many, codec=codec))
    at = data.draw(st.integers(16, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecords):
        decode(bytes(good), "t", 0)


@settings(max_examples=200)
@given(st.binary(min_size=1, max_size=60), st.integers(0, 5))
def test_garbage_with_a_right_crc_raises_only_corrupt_records(body: bytes, count: int) -> None:
    data = bytearray(HEADER.size) + body
    fields = [0, len(data) - 12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, count]
    HEADER.pack_into(data, 0, *fields)
    fields[4] = batch_crc(data)
    HEADER.pack_into(data, 0, *fields)
    with contextlib.suppress(CorruptRecords):
        decode(bytes(data), "t", 0).validate(full=True)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=50))
def test_varints_of_every_width(values: list[int]) -> None:
    parts = []
    for value in values:
        number, out = (value << 1) ^ (value >> 63), bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        parts.append(bytes([*out, number]))
    ends = np.cumsum([len(one) for one in parts])
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    found, after = read_varints(np.frombuffer(b"".join(parts), np.uint8), starts)
    assert found.tolist() == values
    assert after.tolist() == ends.tolist()
