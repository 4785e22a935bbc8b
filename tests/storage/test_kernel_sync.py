"""The kernel's own syncs, on real files."""

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.storage import kernel_sync
from chronik.storage.kernel_sync import DEPTH, KernelSync

WAIT_S = 10


@pytest.fixture
def kernel() -> Iterator[KernelSync]:
    found = KernelSync.open()
    if found is None:
        pytest.skip("this kernel has no AIO: threads do it")
    yield found
    found.close()


def finished(kernel: KernelSync, count: int) -> dict[int, int]:
    done: dict[int, int] = {}
    while len(done) < count:
        assert select.select([kernel.ready], [], [], WAIT_S)[0], f"only {done}"
        done |= dict(kernel.finished())
    return done


def test_files_are_synced_and_each_is_told_by_its_token(kernel: KernelSync, tmp_path: Path) -> None:
    files = []
    for number in range(DEPTH):
        file = os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR)
        os.write(file, b"x" * 1000)
        files.append((number + 7, file))
    assert kernel.submit(files) == DEPTH
    for _, file in files:
        os.close(file)  # it is the kernel's by now
    assert finished(kernel, DEPTH) == dict.fromkeys(range(7, 7 + DEPTH), 0)
    assert kernel.finished() == []


def test_what_the_kernel_refuses_at_once_is_not_taken(kernel: KernelSync, tmp_path: Path) -> None:
    closed = os.open(tmp_path / "closed", os.O_CREAT | os.O_RDWR)
    good = os.open(tmp_path / "good", os.O_CREAT | os.O_RDWR)
    os.close(closed)
    assert kernel.submit([(1, closed), (2, good)]) == 0
    assert kernel.submit([(2, good), (1, closed)]) == 1
    assert finished(kernel, 1) == {2: 0}
    os.close(good)


def test_what_cannot_be_synced_is_not_taken(kernel: KernelSync) -> None:
    reading, writing = os.pipe()
    assert kernel.submit([(3, writing)]) == 0
    os.close(reading)
    os.close(writing)


def test_a_sync_that_failed_says_why(
    kernel: KernelSync, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No disk here fails when asked to: what the kernel would say is put in its place."""
    getevents = kernel._getevents

    def failing(*given: int | None) -> int:
        count = getevents(*given)
        event = kernel_sync._EVENT
        token, place, _, second = event.unpack_from(kernel._events)
        event.pack_into(kernel._events, 0, token, place, -errno.EIO, second)
        return count

    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    assert kernel.submit([(5, file)]) == 1
    os.close(file)
    monkeypatch.setattr(kernel, "_getevents", failing)
    assert finished(kernel, 1) == {5: errno.EIO}


def test_a_system_without_it_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_sync, "_CALLS", {"pdp11": kernel_sync._Calls(1, 2, 3, 4)})
    assert KernelSync.open() is None


def test_a_kernel_that_refuses_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox: a system call that does not exist."""
    none = kernel_sync._Calls(10_000, 10_000, 10_000, 10_000)
    monkeypatch.setattr(kernel_sync, "_CALLS", dict.fromkeys(("x86_64", "aarch64"), none))
    assert KernelSync.open() is None
