"""Large buffers are used again, but never while somebody can see their bytes."""

import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.net.frames import (
    POOLED_BYTES_MAX,
    POOLED_BYTES_MIN,
    POOLED_TOTAL_BYTES_MAX,
    FramePool,
    FrameReader,
)

SIZE = 3 * POOLED_BYTES_MIN


def test_a_buffer_that_nobody_looks_at_is_used_again() -> None:
    pool, frame = FramePool(), bytearray(SIZE)
    pool.give(frame)
    assert pool.take(SIZE - 10) is frame
    assert len(frame) == SIZE - 10
    assert pool.take(SIZE) is not frame


def test_a_buffer_is_as_large_as_asked_for_and_its_memory_stays() -> None:
    pool, frame = FramePool(), bytearray(SIZE)
    memory = sys.getsizeof(frame)
    for size in (SIZE - 1, SIZE, SIZE // 2 + 1, SIZE - 1000, SIZE):
        pool.give(frame)
        assert pool.take(size) is frame
        assert (len(frame), sys.getsizeof(frame)) == (size, memory)
    pool.give(frame)
    assert pool.take(SIZE + 1) is not frame


def test_a_buffer_with_a_view_waits_until_the_view_is_gone() -> None:
    pool, frame = FramePool(), bytearray(SIZE)
    view = memoryview(frame)[10:20]
    pool.give(frame)
    assert pool.take(SIZE) is not frame
    view.release()
    assert pool.take(SIZE) is frame


def test_small_and_very_different_buffers_are_left_alone() -> None:
    pool, small, large = FramePool(), bytearray(100), bytearray(SIZE * 4)
    pool.give(small)
    pool.give(large)
    assert pool.take(100) is not small
    assert pool.take(SIZE) is not large


SIZES = st.sampled_from([1, 5, 5000, SIZE, SIZE + 9, 2 * SIZE])


@settings(max_examples=30)
@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=6), st.sampled_from([1000, 1 << 20]))
def test_frames_are_whole_however_they_arrive_and_whoever_keeps_them(
    wanted: list[tuple[int, bool]], piece: int
) -> None:
    pool = FramePool()
    reader = FrameReader(memoryview(bytearray(4096)), pool)
    expected = [bytes([number % 251 + 1]) * size for number, (size, _) in enumerate(wanted)]
    stream = memoryview(b"".join(struct.pack(">i", len(one)) + one for one in expected))
    kept: list[tuple[memoryview, bytes]] = []
    arrived = 0
    while stream:
        into = reader.buffer()
        count = min(len(into), len(stream), piece)
        into[:count] = stream[:count]
        stream = stream[count:]
        del into  # as the event loop lets go of it
        for frame in reader.received(count):
            assert frame == expected[arrived]
            if wanted[arrived][1]:
                kept.append((memoryview(frame), expected[arrived]))
            pool.give(frame)
            arrived += 1
    assert arrived == len(wanted)
    assert all(view == was for view, was in kept)


@pytest.mark.parametrize("shared", [4096, 4 * SIZE])
def test_large_frames_of_one_stream_take_turns_in_one_buffer(shared: int) -> None:
    pool = FramePool()
    reader = FrameReader(memoryview(bytearray(shared)), pool)
    used = set()
    for number in range(5):
        stream = memoryview(struct.pack(">i", SIZE) + bytes([number]) * SIZE)
        while stream:
            into = reader.buffer()
            count = min(len(into), len(stream))
            into[:count] = stream[:count]
            stream = stream[count:]
            del into
            for frame in reader.received(count):
                assert frame == bytes([number]) * SIZE
                used.add(id(frame))
                pool.give(frame)
    assert len(used) == 1


def test_many_buffers_wait_for_the_disk_and_all_are_used_again() -> None:
    """A fast client has more under way than the node writes at once."""
    pool, looked_at = FramePool(), []
    for _ in range(20):
        frame = pool.take(SIZE)
        looked_at.append(memoryview(frame))
        pool.give(frame)
    first = [view.obj for view in looked_at]
    assert len(set(map(id, first))) == 20
    looked_at.clear()
    again = [pool.take(SIZE - number) for number in range(20)]
    assert set(map(id, again)) == set(map(id, first))
    assert pool.bytes == 0


def test_what_is_kept_is_bounded() -> None:
    pool = FramePool()
    frames = [bytearray(POOLED_BYTES_MAX) for _ in range(20)]
    for frame in frames:
        pool.give(frame)
    assert POOLED_TOTAL_BYTES_MAX - POOLED_BYTES_MAX < pool.bytes <= POOLED_TOTAL_BYTES_MAX
    assert pool.take(POOLED_BYTES_MAX) is frames[20 - POOLED_TOTAL_BYTES_MAX // POOLED_BYTES_MAX]


@given(st.integers(POOLED_BYTES_MIN, POOLED_BYTES_MAX), st.data())
@settings(max_examples=50)
def test_a_buffer_keeps_its_memory_whatever_it_is_used_for(size: int, data: st.DataObject) -> None:
    pool = FramePool()
    frame = pool.take(size)
    memory = sys.getsizeof(frame)
    room = memory - sys.getsizeof(bytearray()) - 1
    pool.give(frame)
    assert pool.bytes == room
    wanted = data.draw(
        st.integers(max(room // 2 + 1, POOLED_BYTES_MIN), min(room, POOLED_BYTES_MAX))
    )
    assert pool.take(wanted) is frame
    assert (len(frame), sys.getsizeof(frame)) == (wanted, memory)
