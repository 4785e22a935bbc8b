"""Syncs that the kernel does by itself: fdatasync through Linux AIO, and an eventfd that says when.

A thread that syncs has to get the GIL before and after, in turns with an event loop that wants it
too; here nobody waits. Only the four system calls are used, without a library: `open` says None
where the system has none of them (another system, a sandbox), and threads do it as everywhere.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Sequence
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


_REQUEST = struct.Struct("=QIiHhI40x")
"""`struct iocb` of linux/aio_abi.h on a little-endian machine: token, key, flags, operation,
priority, file; what follows but for the two of `_NOTIFY` is zero for a sync."""
_REQUEST_START = struct.Struct("=QIiHhI")
_NOTIFY = struct.Struct("=II")
"""Its last eight bytes: that an eventfd is to be told, and which."""
_EVENT = struct.Struct("=QQqq")
"""`struct io_event`: token, address of the request, result, second result."""


class KernelSync:
    """One context of the kernel. Not thread safe: it belongs to the event loop."""

    def __init__(self, calls: _Calls) -> None:
        """Raises OSError where the kernel refuses."""
        self._libc = ctypes.PyDLL(None, use_errno=True)  # quick calls: the GIL is kept
        long, address = ctypes.c_long, ctypes.c_void_p
        self._submit = self._system_call(calls.submit, long, long, address)
        self._getevents = self._system_call(calls.getevents, long, long, long, address, address)
        self._destroy = self._system_call(calls.destroy, long)
        context = ctypes.c_ulong(0)
        self._system_call(calls.setup, long, address)(DEPTH, ctypes.addressof(context))
        self._context = context.value
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when something is done."""
        self._requests = ctypes.create_string_buffer(_REQUEST.size * DEPTH)
        first = ctypes.addressof(self._requests)
        starts = range(0, _REQUEST.size * DEPTH, _REQUEST.size)
        for start in starts:
            at = start + _REQUEST.size - _NOTIFY.size
            _NOTIFY.pack_into(self._requests, at, _TO_EVENTFD, self.ready)
        self._places = (ctypes.c_void_p * DEPTH)(*(first + start for start in starts))
        self._first_place = ctypes.addressof(self._places)
        self._events = ctypes.create_string_buffer(_EVENT.size * DEPTH)
        self._first_event = ctypes.addressof(self._events)

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
        start = 0
        for token, file in files:
            _REQUEST_START.pack_into(self._requests, start, token, 0, 0, _FDSYNC, 0, file)
            start += _REQUEST.size
        try:
            return self._submit(self._context, len(files), self._first_place)
        except OSError:
            return 0

    def finished(self) -> list[tuple[int, int]]:
        """Tokens of what is done, each with its error number or 0; does not wait."""
        try:
            os.eventfd_read(self.ready)
        except BlockingIOError:
            return []
        count = self._getevents(self._context, 0, DEPTH, self._first_event, None)
        events = memoryview(self._events)[: count * _EVENT.size]
        return [(token, -result) for token, _, result, _ in _EVENT.iter_unpack(events)]

    def close(self) -> None:
        """Waits for what is under way."""
        self._destroy(self._context)
        os.close(self.ready)

    def _system_call(self, number: int, *kinds: type) -> Callable[..., int]:
        """A function for one system call: what is known before is not found out at every call."""
        syscall = self._libc["syscall"]
        syscall.argtypes = (ctypes.c_long, *kinds)
        syscall.restype = ctypes.c_long

        def call(*given: int | None) -> int:
            result = int(syscall(number, *given))
            if result < 0:
                failed = ctypes.get_errno()
                raise OSError(failed, os.strerror(failed))
            return result

        return call
