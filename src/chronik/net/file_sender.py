"""Answers that hold slices of files, sent past the transport: the kernel takes them from the files.

A transport knows only buffers, and would copy them. The socket is the transport's under a second
descriptor; what it does not take at once is left to the transport, which waits for room.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path

from chronik.model import limits
from chronik.wire.pieces import FileSlice, Piece, buffers_of

BUFFERS_AT_ONCE_MAX = 64
"""Buffers one call sends together; there is rarely more than one between two slices."""
_IMPOSSIBLE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""What `sendfile` says of a file or a socket it cannot do."""


class FileSender:
    """Sends pieces in order as far as the socket takes them, if the transport has none itself."""

    __slots__ = ("_pieces", "_socket", "possible")

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        _enlarge(self._socket)
        self._pieces: deque[Piece] = deque()
        self.possible = True
        """False once the kernel has refused to send a file."""

    def send(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Returns what was not sent; OSError where the client is gone or the disk not readable."""
        self._pieces.extend(filter(len, pieces))
        room = limits.SENT_AT_ONCE_BYTES_MAX
        try:
            while self._pieces and room > 0 and self.possible:
                count = self._send_first(room)
                self._drop(count)
                room -= count
        except BlockingIOError:
            pass
        finally:
            left = list(self._pieces)
            self._pieces.clear()
        return left

    def close(self) -> None:
        """Gives up the socket."""
        self._socket.close()

    def _send_first(self, room: int) -> int:
        """Sends the first piece or a part of it, buffers together; returns how many bytes."""
        first = self._pieces[0]
        if not isinstance(first, FileSlice):
            return self._send_buffers()
        try:
            return self._send_file(first, room)
        except OSError as error:
            if error.errno not in _IMPOSSIBLE:
                raise
            self.possible = False
            return 0

    def _send_file(self, piece: FileSlice, room: int) -> int:
        size = min(len(piece), room)
        sent = os.sendfile(self._socket.fileno(), piece.descriptor, piece.position, size)
        if not sent:
            raise OSError(errno.EIO, "a segment file is shorter than what was read from it")
        return sent

    def _send_buffers(self) -> int:
        together: list[Piece] = []
        for piece in islice(self._pieces, BUFFERS_AT_ONCE_MAX):
            if isinstance(piece, FileSlice):
                break
            together.append(piece)
        # What follows goes into the same packet as the last of these.
        more = socket.MSG_MORE if len(together) < len(self._pieces) else 0
        return self._socket.sendmsg(buffers_of(together), (), socket.MSG_DONTWAIT | more)

    def _drop(self, count: int) -> None:
        """Forgets what was sent."""
        while count:
            first = self._pieces.popleft()
            if count < len(first):
                self._pieces.appendleft(after(first, count))
                return
            count -= len(first)


def _enlarge(taken: socket.socket) -> None:
    """Room for a whole answer: what is sent from files are pages of the cache, not copies.

    Only where the system allows as much. A lower value would be worse than the kernel's own choice.
    """
    if _send_buffer_max() >= limits.SEND_BUFFER_BYTES:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)


@cache
def _send_buffer_max() -> int:
    try:
        return int(Path("/proc/sys/net/core/wmem_max").read_text())
    except (OSError, ValueError):
        return 0  # another system, or a container that does not show it


def after(piece: Piece, count: int) -> Piece:
    """The piece without its first bytes."""
    if isinstance(piece, FileSlice):
        return FileSlice(piece.view[count:], piece.descriptor, piece.position + count)
    return memoryview(piece)[count:]
