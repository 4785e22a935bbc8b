"""A file system synced as a whole: used only where it says that it failed."""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.descriptors import open_below

from chronik.sim.disk import SimDisk
from chronik.storage import volume
from chronik.storage.fs import RealFileSystem
from chronik.storage.volume import RealVolume, is_new_enough, mounted_types, open_volume

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
37 35 98:1 / / rw shared:1 propagate_from:2 - ext4 /dev/one rw
38 37 98:1 /srv /a\\040-\\040b rw - ext4 /dev/one rw
39 37 0:44 / /over rw - overlay overlay rw,lowerdir=/a
40 37 8:17 / /no-separator rw shared:1 ext4 /dev/two rw

41 37 8:33 / /cut rw -
"""


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("5.17", True),
        ("5.17.0", True),
        ("5.17-rc4", True),
        ("6.18.44-fc-v445", True),
        ("6.1.0+", True),
        ("10.0.1", True),
        ("5.16.20-generic", False),
        ("5.8.0", False),
        ("4.19.0-27-amd64", False),
        ("2.6.60+", False),
        ("5", False),
        ("5.x", False),
        ("5.17a", False),
        ("6.", False),
        ("6.1000", False),
        ("Linux 6.1", False),
        ("-6.1", False),
        ("", False),
    ],
)
def test_the_kernel_has_to_say_what_failed(release: str, expected: bool) -> None:
    assert is_new_enough(release) is expected


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ((98, 1), {"ext4"}),
        ((98, 0), {"ext3"}),
        ((0, 44), {"overlay"}),
        ((8, 17), set()),
        ((8, 33), set()),
        ((98, 10), set()),
    ],
)
def test_the_type_of_a_file_system_is_found_by_its_device(
    device: tuple[int, int], expected: set[str]
) -> None:
    assert mounted_types(MOUNTS.splitlines(), os.makedev(*device)) == expected


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealVolume]:
    found = open_volume(str(tmp_path))
    if found is None:
        pytest.skip("each file is synced on its own here: an older kernel, or not ext4")
    yield found
    found.close()


def written(*paths: Path) -> list[str]:
    for path in paths:
        path.write_bytes(b"x" * 1000)
    return [str(path) for path in paths]


def test_files_of_one_file_system_are_synced(real: RealVolume, tmp_path: Path) -> None:
    real.sync(written(*(tmp_path / str(number) for number in range(10))))


def test_a_file_of_another_file_system_is_noticed(real: RealVolume, tmp_path: Path) -> None:
    """Behind a symbolic link as well as on a mount: what counts is where its bytes are."""
    paths = written(tmp_path / "here")
    (tmp_path / "there").symlink_to("/proc/self/status")
    with pytest.raises(OSError, match="another file system") as raised:
        real.sync([*paths, str(tmp_path / "there")])
    assert raised.value.errno == errno.EXDEV


def test_a_file_that_is_gone_is_noticed(real: RealVolume, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        real.sync([str(tmp_path / "gone")])


def test_a_sync_that_failed_says_why(real: RealVolume, tmp_path: Path) -> None:
    """What the kernel would say is put in its place; see below for a disk that does fail."""

    def refusing(file: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    real._syncfs = refusing
    with pytest.raises(OSError, match="Input/output") as raised:
        real.sync(written(tmp_path / "file"))
    assert raised.value.errno == errno.EIO


def test_a_file_system_that_gave_up_is_noticed(
    real: RealVolume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to sync, so that syncfs has nothing to say; fsync has."""

    def read_only(file: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", read_only)
    with pytest.raises(OSError, match="Read-only"):
        real.sync(written(tmp_path / "file"))


def test_other_file_systems_and_kernels_are_not_relied_on(
    real: RealVolume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_below(tmp_path)
    assert open_volume("/proc") is None
    assert open_volume(str(tmp_path / "nothing")) is None
    monkeypatch.setattr(volume, "LINUX_MIN", (999, 0))
    assert open_volume(str(tmp_path)) is None
    assert open_below(tmp_path) == before, "nothing is left open"
    assert "/proc" not in open_below(Path("/proc"))


def test_a_file_system_that_watches_every_sync_has_none(real: RealVolume, tmp_path: Path) -> None:
    class Watching(RealFileSystem):
        pass

    assert Watching().open_volume(str(tmp_path)) is None
    found = RealFileSystem().open_volume(str(tmp_path))
    assert found is not None
    found.close()


# ---- a disk that really fails


def sudo(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr}")


@pytest.fixture
def thin_disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 that believes to have 64 MB, on 12 MB of memory: writing pages back fails."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("mounting a disk needs root and mkfs.ext4")
    below, mounted = tmp_path / "below", tmp_path / "mounted"
    below.mkdir()
    mounted.mkdir()
    sudo("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(below))
    try:
        image = below / "image"
        image.touch()
        os.truncate(image, 64 << 20)
        sudo("mkfs.ext4", "-q", str(image))
        sudo("mount", "-o", "loop", str(image), str(mounted))
        try:
            yield mounted
        finally:
            subprocess.run(["umount", "-l", str(mounted)], check=False)
    finally:
        subprocess.run(["umount", "-l", str(below)], check=False)


@pytest.mark.integration
def test_what_a_real_disk_did_not_take_is_told_once_and_then_by_the_files(thin_disk: Path) -> None:
    """Also where somebody else was told before; and only to who had opened before the writes."""
    first, second = open_volume(str(thin_disk)), open_volume(str(thin_disk))
    if first is None or second is None:
        pytest.skip("each file is synced on its own here: an older kernel")
    paths = [str(thin_disk / str(number)) for number in range(12)]
    files = [os.open(path, os.O_CREAT | os.O_RDWR) for path in paths]
    for file in files:
        os.write(file, os.urandom(2 << 20))
    for opened in (first, second):
        with pytest.raises(OSError, match=r"Input/output|No space"):
            opened.sync(paths)
    late = open_volume(str(thin_disk))
    assert late is not None
    late.sync(paths)
    failed = 0
    for file in files:
        try:
            os.fdatasync(file)
        except OSError:
            failed += 1
        os.close(file)
    assert failed
    for opened in (first, second, late):
        opened.close()


# ---- the simulated one


def test_the_simulated_disk_is_synced_file_by_file() -> None:
    disk = SimDisk()
    disk.mkdir("/a")
    opened = disk.open_volume("/")
    for name in ("/a/1", "/a/2", "/3"):
        disk.pwritev(disk.create(name), [name.encode()], 0)
    disk.fail("syncfs", errno.EIO, after=1)
    with pytest.raises(OSError, match="Input/output"):
        opened.sync(["/a/1"])
    assert disk.calls["syncfs"] == 3, "the others are written all the same"
    with pytest.raises(OSError, match="Input/output"):
        disk.fdatasync(disk.open("/a/2"))
    opened.sync(["/a/1"])
    opened.close()


def test_a_volume_knows_of_failures_since_it_was_opened() -> None:
    disk = SimDisk()
    disk.mounts.add("/b")
    for directory in ("/a", "/b"):
        disk.mkdir(directory)
        disk.pwritev(disk.create(f"{directory}/file"), [b"x"], 0)
    before, elsewhere = disk.open_volume("/a"), disk.open_volume("/b")
    disk.lose_written("/a/file")
    after = disk.open_volume("/a")
    with pytest.raises(OSError, match="Input/output"):
        before.sync(["/a/file"])
    after.sync(["/a/file"])
    elsewhere.sync(["/b/file"])
    with pytest.raises(OSError, match="cross-device"):
        before.sync(["/b/file"])
