"""The batch header: what may be patched, what the CRC covers, where a torn tail ends a scan."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.clients.batches import Batch

from chronik.wire.records import (
    HEADER_SIZE,
    NO_SEQUENCE,
    batch_crc,
    patch,
    patch_append_time,
    read_header,
    read_prefix,
    scan,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=5)


def encoded(*values: bytes, **fields: int) -> bytearray:
    return bytearray(Batch(values=values or (b"a",), **fields).encode())


def test_every_field_is_read_from_its_place() -> None:
    data = encoded(b"x", b"yy", producer_id=5, producer_epoch=6, sequence=7, leader_epoch=8)
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert (header.leader_epoch, header.record_count, header.last_offset_delta) == (8, 2, 1)
    assert header.size == len(data)
    assert read_prefix(data, 0) == (0, len(data))


def test_fm12_the_crc_is_crc32c_from_the_attributes_on() -> None:
    data = encoded(b"payload")
    (stated,) = struct.unpack_from(">I", data, 17)
    assert stated == batch_crc(data) == crc32c(bytes(data[21:]))


@given(VALUES, INT64, st.integers(-(2**31), 2**31 - 1))
def test_fm12_the_crc_survives_the_offset_patch(
    values: list[bytes], base_offset: int, leader_epoch: int
) -> None:
    data = encoded(*values)
    before = bytes(data)
    patch(data, base_offset, leader_epoch)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (base_offset, leader_epoch)
    assert header.crc == batch_crc(data)
    assert data[16:] == before[16:]
    assert data[8:12] == before[8:12]


@given(VALUES, st.integers(0, 2**62))
def test_log_append_time_keeps_a_valid_crc_and_the_records(values: list[bytes], now: int) -> None:
    data = encoded(*values)
    before = bytes(data)
    patch_append_time(data, now)
    header = read_header(data)
    assert header.is_log_append_time
    assert header.max_timestamp == now
    assert header.crc == batch_crc(data)
    assert data[HEADER_SIZE:] == before[HEADER_SIZE:]
    patch_append_time(data, now)
    assert read_header(data) == header


@pytest.mark.parametrize(
    ("base", "count", "last"),
    [(0, 1, 0), (5, 3, 7), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 4, 1)],
)
def test_the_last_sequence_wraps_as_the_producers_does(base: int, count: int, last: int) -> None:
    data = encoded(*[b"v"] * count, producer_id=1, producer_epoch=0, sequence=base)
    assert read_header(data).last_sequence == last


def test_a_batch_without_a_producer_has_no_last_sequence() -> None:
    assert read_header(encoded()).last_sequence == NO_SEQUENCE


@given(st.lists(VALUES, min_size=1, max_size=4), st.data())
def test_a_scan_ends_at_the_first_torn_batch(
    batches: list[list[bytes]], data: st.DataObject
) -> None:
    parts = [bytes(encoded(*values)) for values in batches]
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    found = [position + header.size for position, header in scan(whole[:cut])]
    assert found == [end for end in ends if end <= cut]


@given(st.binary(max_size=300))
def test_a_scan_of_garbage_ends(data: bytes) -> None:
    assert sum(header.size for _, header in scan(data)) <= len(data)
