"""Every byte is written, whatever one system call takes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.sim.disk import SimDisk
from chronik.storage.fs import IOV_MAX, WRITE_BYTES_MAX, write_all
from chronik.wire.records import Buffer

AT = 7


class Counting(SimDisk):
    """Writes at most so many bytes a call, and remembers what it was asked for."""

    def __init__(self, at_most: int) -> None:
        super().__init__()
        self.at_most = at_most
        self.asked: list[list[int]] = []

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        self.asked.append([len(one) for one in buffers])
        joined = b"".join(buffers)[: self.at_most]
        return super().pwritev(file, [joined], position)


def written(disk: Counting, buffers: Sequence[Buffer]) -> bytes:
    file = disk.create("f")
    write_all(disk, file, buffers, AT)
    return disk.pread(file, disk.size("f"), 0)


@given(st.lists(st.binary(max_size=20), max_size=12), st.integers(1, 60))
def test_short_writes_are_continued(buffers: list[bytes], at_most: int) -> None:
    expected = b"".join(buffers)
    assert written(Counting(at_most), buffers)[AT:] == expected


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        pytest.param([WRITE_BYTES_MAX], [[WRITE_BYTES_MAX]], id="as much as one call takes"),
        pytest.param(
            [2 * WRITE_BYTES_MAX + 5],
            [[WRITE_BYTES_MAX], [WRITE_BYTES_MAX], [5]],
            id="one long buffer",
        ),
        pytest.param(
            [600_000, 400_000, 100_000, 5],
            [[600_000, 400_000], [100_000, 5]],
            id="as many as fit",
        ),
        pytest.param([1] * (IOV_MAX + 2), [[1] * IOV_MAX, [1, 1]], id="many buffers"),
    ],
)
def test_a_call_takes_so_much_and_no_more(sizes: list[int], calls: list[list[int]]) -> None:
    disk = Counting(WRITE_BYTES_MAX)
    buffers = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    assert written(disk, buffers)[AT:] == b"".join(buffers)
    assert disk.asked == calls
