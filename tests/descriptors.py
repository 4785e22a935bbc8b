"""What this process has open of a test's own: of other tests' clients something comes or goes."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """Files and directories there, once for each descriptor."""
    return [path for _, path in _descriptors() if path.startswith(str(folder))]


def open_sockets(port: int) -> list[str]:
    """Internet sockets of which one end is this port."""
    return [
        name
        for descriptor, name in _descriptors()
        if name.startswith("socket:") and port in _ports(descriptor)
    ]


def _descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed since it was listed
            yield int(name), os.readlink(f"/proc/self/fd/{name}")


def _ports(descriptor: int) -> set[int]:
    ends = set()
    with (
        contextlib.suppress(OSError),  # closed by now, or not connected
        socket.socket(fileno=os.dup(descriptor)) as looked_at,
    ):
        if looked_at.family == socket.AF_INET:
            ends.add(looked_at.getsockname()[1])
            ends.add(looked_at.getpeername()[1])
    return ends
