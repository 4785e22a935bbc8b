"""Values that name themselves, as bytes and as JSON."""

import json

import pytest

from chronik.audit.payload import (
    HEADER_SIZE,
    JOINED_SIZE_MAX,
    UNPACKED_AT_ONCE,
    JsonWriter,
    PayloadWriter,
    read_payload,
    sequences_of,
)


@pytest.mark.parametrize("size", [HEADER_SIZE, 100, JOINED_SIZE_MAX, JOINED_SIZE_MAX + 1])
@pytest.mark.parametrize("count", [1, UNPACKED_AT_ONCE, UNPACKED_AT_ONCE + 1, 200])
def test_the_sequences_of_many_are_each_ones_own(size: int, count: int) -> None:
    writer = PayloadWriter(1, 0, size)
    sequences = [n * 7 + 2**40 for n in range(count)]
    assert list(sequences_of([writer.write(n)[0] for n in sequences])) == sequences


def test_a_json_value_is_json_and_names_itself() -> None:
    value, checksum = JsonWriter(run=7, sender=2).write(123, b"k")
    assert json.loads(value)["amount"] == 123.26
    payload = read_payload(value, b"k")
    assert payload is not None
    assert payload[:3] == (7, 2, 123)
    assert payload.checksum == checksum
    assert payload.intact
    assert list(sequences_of([value, value])) == [123, 123]


def test_an_altered_json_value_does_not_pass() -> None:
    value, _ = JsonWriter(run=7, sender=2).write(123, b"k")
    altered = read_payload(value.replace(b'"amount":1', b'"amount":2'), b"k")
    other_key = read_payload(value, b"other")
    assert altered is None or not altered.intact
    assert other_key is not None
    assert not other_key.intact
    assert read_payload(value[:-1], b"k") is None
