"""A read knows whether it has all there is, or was ended by a limit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.support import append, batch, joined, new_disk, open_log

from chronik.storage.segment import LogConfig


@settings(max_examples=150)
@given(
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=15),
    segment_bytes=st.sampled_from([300, 1000, 100_000]),
    interval=st.sampled_from([1, 200, 4096]),
    span=st.tuples(st.integers(0, 14), st.integers(0, 15)),
    max_bytes=st.integers(0, 1000),
    one=st.booleans(),
    whole=st.booleans(),
)
def test_it_is_all_if_no_byte_below_the_end_is_left(
    sizes: list[int],
    segment_bytes: int,
    interval: int,
    span: tuple[int, int],
    max_bytes: int,
    one: bool,
    whole: bool,
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log, _ = open_log(new_disk(), config)
    made = [batch(offset, value=b"v" * size) for offset, size in enumerate(sizes)]
    for each in made:
        append(log, each, sync=False)
    first, end = (min(offset, len(made)) for offset in span)
    read = log.read(first, max_bytes, end, at_least_one_batch=one, whole=whole)
    there = joined(made[first:end])
    assert joined(map(bytes, read.slices)) == there[: read.size]
    assert read.is_all is (read.size == len(there))


@pytest.mark.parametrize("max_bytes", [150, 10_000])
def test_the_end_of_an_old_segment_is_not_the_end(max_bytes: int) -> None:
    log, _ = open_log(new_disk(), LogConfig(segment_bytes=150))
    append(log, batch(0), batch(1), batch(2))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    for offset, end, is_all in ((0, 3, False), (1, 3, False), (2, 3, True), (0, 2, True)):
        read = log.read(offset, max_bytes, end, at_least_one_batch=True, whole=True)
        assert read.size > 0
        assert read.is_all is is_all
