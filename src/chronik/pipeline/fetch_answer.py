"""Fetch answers (v12) of one partition, read by hand: the records stay a slice of the frame."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from chronik.pipeline.decode import Aborted
from chronik.wire.headers import read_response_header
from chronik.wire.messages.fetch import FetchResponse
from chronik.wire.primitives import WireError, read_string, read_uvarint, skip_tags

VERSION = 12
"""The last one that names topics rather than ids."""
_TOP = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_REPLICA = struct.Struct(">i")
_NO_RECORDS = memoryview(b"")


@dataclass(slots=True)
class FetchAnswer:
    """What a Fetch of one partition brought."""

    error_code: int
    """Of the whole answer, or else of the partition."""
    found: bool
    """Does the answer name a partition at all?"""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[Aborted] = ()
    records: memoryview = _NO_RECORDS


def read_answer(frame: memoryview, correlation_id: int) -> FetchAnswer:
    """The answer in the frame; `records` is a slice of it."""
    number, position = read_response_header(FetchResponse.API_KEY, VERSION, frame)
    assert number == correlation_id, "answers come in the order of the requests"
    try:
        return _body(frame, position)
    except (struct.error, IndexError) as error:
        raise WireError(f"Fetch answer: {error}") from error


def _body(frame: memoryview, position: int) -> FetchAnswer:
    _, error_code, _ = _TOP.unpack_from(frame, position)
    topics, position = read_uvarint(frame, position + _TOP.size)
    if error_code or topics < 2:
        return FetchAnswer(error_code, found=False)
    _, position = read_string(frame, position, True)
    partitions, position = read_uvarint(frame, position)
    if partitions < 2:
        return FetchAnswer(error_code, found=False)
    return _partition(frame, position)


def _partition(frame: memoryview, position: int) -> FetchAnswer:
    _, error_code, watermark, stable, start = _PARTITION.unpack_from(frame, position)
    aborted, position = _aborted(frame, position + _PARTITION.size)
    size, position = read_uvarint(frame, position + _REPLICA.size)
    records = frame[position : position + max(size - 1, 0)]
    if len(records) < size - 1:
        raise WireError(f"Fetch answer: {size - 1} bytes of records in {len(records)}")
    return FetchAnswer(error_code, True, watermark, stable, start, aborted, records)


def _aborted(frame: memoryview, position: int) -> tuple[list[Aborted], int]:
    size, position = read_uvarint(frame, position)
    found = []
    for _ in range(size - 1):  # 0 stands for null, 1 for none
        found.append(Aborted(*_ABORTED.unpack_from(frame, position)))
        position = skip_tags(frame, position + _ABORTED.size)
    return found, position
