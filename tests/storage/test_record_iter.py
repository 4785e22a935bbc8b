"""Records inside batches: every codec, every framing, and garbage that must not get through."""

import contextlib
import gzip
import struct

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.support import CODECS, NOW, batch, raw_batch, record

from chronik.wire.record_iter import (
    XERIAL_MAGIC,
    CorruptRecords,
    Record,
    decompress,
    iter_records,
    iter_timestamps,
)

PAYLOAD = b"".join(
    record(i, i * 2, b"v" * (i * 7), b"k" if i % 2 else None, [("h", b"1"), ("n", None)])
    for i in range(20)
)
EXPECTED = [
    Record(
        100 + i, NOW + 2 * i, b"k" if i % 2 else None, b"v" * (i * 7), [("h", b"1"), ("n", None)]
    )
    for i in range(20)
]


def xerial(data: bytes, block: int = 100) -> bytes:
    out = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block):
        piece = bytes(cramjam.snappy.compress_raw(data[at : at + block]))
        out += struct.pack(">i", len(piece)) + piece
    return out


FRAMES = {
    "none": (0, PAYLOAD),
    "gzip": (1, gzip.compress(PAYLOAD)),
    "snappy raw": (2, snappy.compress(PAYLOAD)),
    "snappy xerial": (2, xerial(PAYLOAD)),
    "lz4": (3, lz4.frame.compress(PAYLOAD)),
    "lz4 independent blocks, no size": (
        3,
        lz4.frame.compress(PAYLOAD, block_linked=False, store_size=False),
    ),
    "zstd": (4, zstandard.compress(PAYLOAD)),
    "zstd without size": (
        4,
        zstandard.ZstdCompressor(write_content_size=False).compress(PAYLOAD),
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_records_of_every_codec_are_read(name: str) -> None:
    codec, data = FRAMES[name]
    whole = raw_batch(100, data, 20, attributes=codec)
    assert list(iter_records(whole)) == EXPECTED
    assert list(iter_timestamps(memoryview(whole))) == [(r.offset, r.timestamp) for r in EXPECTED]


@pytest.mark.parametrize("name", FRAMES)
def test_truncated_compressed_bytes_are_refused(name: str) -> None:
    codec, data = FRAMES[name]
    for cut in range(0, len(data) - 1, 7):
        with pytest.raises(CorruptRecords):
            list(iter_records(raw_batch(100, data[:cut], 20, attributes=codec)))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_before_it_fills_the_memory(codec: int) -> None:
    bomb = CODECS[codec](bytes(50_000_000))
    with pytest.raises(CorruptRecords, match="more than"):
        decompress(codec, bomb, size_max=1_000_000)


def test_a_bomb_in_many_snappy_blocks_is_refused() -> None:
    with pytest.raises(CorruptRecords, match="more than"):
        decompress(2, xerial(bytes(3_000_000), 100_000), size_max=1_000_000)


@settings(max_examples=150)
@given(data=st.binary(max_size=200), codec=st.integers(0, 7), count=st.integers(-1, 5))
def test_garbage_raises_corrupt_records_and_nothing_else(
    data: bytes, codec: int, count: int
) -> None:
    with contextlib.suppress(CorruptRecords):
        list(iter_records(raw_batch(0, data, count, attributes=codec)))


@settings(max_examples=100)
@given(at=st.integers(61, 61 + len(PAYLOAD) - 1), value=st.integers(0, 255))
def test_a_changed_byte_yields_records_or_corrupt_records(at: int, value: int) -> None:
    data = bytearray(raw_batch(100, PAYLOAD, 20))
    data[at] = value
    with contextlib.suppress(CorruptRecords):
        assert len(list(iter_records(data))) == 20


def test_a_batch_shorter_than_it_says_is_refused() -> None:
    whole = batch(0)
    for cut in range(0, len(whole), 5):
        with pytest.raises(CorruptRecords):
            list(iter_records(whole[:cut]))
