"""Syncs that the kernel does by itself: fdatasync through Linux AIO, and an eventfd that says when.

A thread that syncs has to get the GIL before and after, in turns with an event loop that wants it
too; here nobody waits. Only the four system calls are used, without a library: `open` says None
where the system has none of them (another system, a sandbox), and threads do it as everywhere.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, Self

DEPTH = 64
"""How many may be under way."""
_FDSYNC = 3
_TO_EVENTFD = 1


class _Calls(NamedTuple):
    """Numbers of the system calls (Linux: arch/*/entry/syscalls, asm-generic/unistd.h)."""

    setup: int
    destroy: int
    submit: int
    getevents: int


_CALLS = {
    "x86_64": _Calls(setup=206, destroy=207, submit=209, getevents=208),
    "aarch64": _Calls(setup=0, destroy=1, submit=2, getevents=4),
}


class _Request(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h on a little-endian machine."""

    _fields_ = (
        ("token", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("operation", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """`struct io_event`."""

    _fields_ = (
        ("token", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelSync:
    """One context of the kernel. Not thread safe: it belongs to the event loop."""

    def __init__(self, calls: _Calls) -> None:
        """Raises OSError where the kernel refuses."""
        self._calls = calls
        self._libc = ctypes.PyDLL(None, use_errno=True)  # quick calls: the GIL is kept
        self._context = ctypes.c_ulong(0)
        self._call(calls.setup, DEPTH, ctypes.byref(self._context))
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when something is done."""
        self._requests = (_Request * DEPTH)()
        for request in self._requests:
            request.operation, request.flags = _FDSYNC, _TO_EVENTFD
            request.eventfd = self.ready
        places = [ctypes.pointer(request) for request in self._requests]
        self._places = (ctypes.POINTER(_Request) * DEPTH)(*places)
        self._events = (_Event * DEPTH)()

    @classmethod
    def open(cls) -> Self | None:
        """None where this system cannot do it."""
        calls = _CALLS.get(os.uname().machine)
        if calls is None or sys.platform != "linux" or sys.byteorder != "little":
            return None
        try:
            return cls(calls)
        except (OSError, AttributeError):
            return None

    def submit(self, files: Sequence[tuple[int, int]]) -> int:
        """Begins to sync (token, file) pairs, at most DEPTH; returns how many it took, in order.

        A file may be closed at once: the kernel keeps it.
        """
        for request, (token, file) in zip(self._requests, files, strict=False):
            request.token, request.file = token, file
        try:
            return self._call(self._calls.submit, self._context, len(files), self._places)
        except OSError:
            return 0

    def finished(self) -> list[tuple[int, int]]:
        """Tokens of what is done, each with its error number or 0; does not wait."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        count = self._call(self._calls.getevents, self._context, 0, DEPTH, self._events, None)
        return [(event.token, -event.result) for event in self._events[:count]]

    def close(self) -> None:
        """Waits for what is under way."""
        self._call(self._calls.destroy, self._context)
        os.close(self.ready)

    def _call(self, number: int, *given: object) -> int:
        result = int(self._libc.syscall(ctypes.c_long(number), *given))
        if result < 0:
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))
        return result
