"""What people type: addresses, pairs, positions, escapes; each refusal says what is allowed."""

from datetime import datetime
from typing import Any, cast

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.cli._offsets import Position, Range, parse_position, resolve
from chronik.cli._options import pairs, split_address, unescaped
from chronik.cli._output import count_text, size_text

NOW_MS = 1_800_000_000_000
NOBODY = cast("Any", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("localhost", ("localhost", 9092)),
        (" broker-1.example:19092 ", ("broker-1.example", 19092)),
        ("[::1]:9093", ("[::1]", 9093)),
        ("[::1]", ("[::1]", 9092)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "host:", "host:x", "host:0", "host:65536", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no HOST:PORT"):
        split_address(text)


def test_pairs_keep_further_equals_signs() -> None:
    assert pairs(["a=b=c", "empty="], "--config") == {"a": "b=c", "empty": ""}


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no KEY=VALUE"):
        pairs([text], "--config")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("0", Position("offset", 0)),
        ("42", Position("offset", 42)),
        ("-5", Position("last", 5)),
        ("-250ms", Position("time", NOW_MS - 250)),
        ("-30s", Position("time", NOW_MS - 30_000)),
        ("-10m", Position("time", NOW_MS - 600_000)),
        ("-1.5h", Position("time", NOW_MS - 5_400_000)),
        ("-1d", Position("time", NOW_MS - 86_400_000)),
        ("-99999999d", Position("time", 0)),
        ("2026-01-02T03:04:05Z", Position("time", 1_767_323_045_000)),
        ("2026-01-02T04:04:05.250+01:00", Position("time", 1_767_323_045_250)),
    ],
)
def test_positions(text: str, expected: Position) -> None:
    assert parse_position(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["0001-01-01", "1800-01-01T12:00", "1969-12-31T23:00Z"])
def test_a_time_before_all_records_is_the_beginning(text: str) -> None:
    assert parse_position(text, NOW_MS) == Position("time", 0)


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 2, 3, 4).astimezone()
    assert parse_position("2026-01-02T03:04", NOW_MS).number == int(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "10m", "-10x", "--5", "1e3", "-"])
def test_what_is_no_position_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ValueError, match="earliest, latest, an offset"):
        parse_position(text, NOW_MS)


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 200),
    st.sampled_from(["offset", "last"]),
)
def test_a_resolved_offset_is_one_that_the_partition_has_or_its_end(
    start: int, length: int, number: int, kind: Any
) -> None:
    has = Range(start, start + length)
    found = resolve(NOBODY, Position(kind, number), {("t", 0): has})
    assert has.start <= found["t", 0] <= has.end


def test_the_last_n_count_from_the_end() -> None:
    held = {("t", 0): Range(0, 100), ("t", 1): Range(0, 2)}
    assert resolve(NOBODY, Position("last", 5), held) == {("t", 0): 95, ("t", 1): 0}


@pytest.mark.parametrize(
    ("text", "expected"), [(":", b":"), (r"\t", b"\t"), (r"\x00|", b"\0|"), ("ü", "ü".encode())]
)
def test_escapes(text: str, expected: bytes) -> None:
    assert unescaped(text, "--key-separator") == expected


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="x escape"):
        unescaped(r"\xZZ", "--format")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (None, "-")],
)
def test_sizes(size: int | None, text: str) -> None:
    assert size_text(size) == text


def test_counts() -> None:
    assert count_text(1, "record") == "1 record"
    assert count_text(1200, "record") == "1,200 records"
    assert count_text(2, "batch", "batches") == "2 batches"
