"""Frames out of a byte stream: a four-byte length, then that many bytes.

Bytes are received into a buffer that many connections share; whole frames are copied out of it, and
a frame that is not whole yet gets a buffer of its own, into which the socket reads directly. So
an idle connection costs no buffer, and each frame owns its bytes. Large buffers are used again:
fresh memory costs the kernel more than the copy into it.
"""

import struct
from collections import deque
from collections.abc import Iterator

from chronik.model import limits

_LENGTH = struct.Struct(">i")
FRAME_STEP_BYTES = 4 * 1024 * 1024
"""A frame's buffer doubles from here as bytes arrive: a length alone allocates little."""
POOLED_BYTES_MIN = 128 * 1024
POOLED_BYTES_MAX = 2 * 1024 * 1024
POOLED_FRAMES_MAX = 8
LARGE_START_BYTES = 16 * 1024
"""Received at once where a large frame is expected: what is more would be copied out again."""


class FrameError(ValueError):
    """A length that no frame has: nothing after it in the stream means anything."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.size = size


class FramePool:
    """Large frames that are done with, for the next ones of about their size."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: deque[bytearray] = deque(maxlen=POOLED_FRAMES_MAX)

    def give(self, frame: bytearray) -> None:
        """The request of this frame is answered; somebody may still look at its bytes."""
        if POOLED_BYTES_MIN <= len(frame) <= POOLED_BYTES_MAX:
            self._frames.append(frame)

    def take(self, size: int) -> bytearray:
        """A buffer of this size, whatever is in it."""
        for _ in range(len(self._frames)):
            frame = self._frames.popleft()
            if len(frame) // 2 < size <= len(frame) * 2 and _resized(frame, size):
                return frame
            self._frames.append(frame)
        return bytearray(size)


def _resized(frame: bytearray, size: int) -> bool:
    """False where a view of the frame is alive: a bytearray cannot change its length then."""
    try:
        frame.append(0)
    except BufferError:
        return False
    if size < len(frame):
        del frame[size:]
    elif size > len(frame):
        frame.extend(bytes(size - len(frame)))
    return True


class FrameReader:
    """One stream. Ask `buffer` where to receive, then tell `received` how much came."""

    __slots__ = ("_filled", "_frame", "_frame_size", "_large", "_pool", "_prefix", "_shared")

    def __init__(self, shared: memoryview, pool: FramePool | None = None) -> None:
        self._shared = shared
        self._pool = pool if pool is not None else FramePool()
        self._large = False
        """The last frame was large: the next one probably is, and wants a buffer of its own."""
        self._prefix = b""
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go: the frame under way, or the buffer that all share."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._shared[:LARGE_START_BYTES] if self._large else self._shared

    def received(self, nbytes: int) -> Iterator[bytearray]:
        """The frames that these bytes complete. Take them all before the next `buffer`."""
        if self._frame is None:
            yield from self._cut(self._shared[:nbytes])
            return
        self._filled += nbytes
        if self._filled == self._frame_size:
            frame, self._frame = self._frame, None
            self._large = len(frame) >= POOLED_BYTES_MIN
            yield frame
        elif self._filled == len(self._frame):
            grown = bytearray(min(self._frame_size, 2 * len(self._frame)))
            grown[: self._filled] = self._frame
            self._frame = grown

    def forget(self) -> None:
        """The stream ended."""
        self._frame = None

    def _cut(self, data: memoryview) -> Iterator[bytearray]:
        if self._prefix:
            data = memoryview(self._prefix + data)
            self._prefix = b""
        position, end = 0, len(data)
        while end - position >= 4:
            (size,) = _LENGTH.unpack_from(data, position)
            if not 0 < size <= limits.REQUEST_BYTES_MAX:
                raise FrameError(size)
            position += 4
            if end - position < size:
                self._start(size, data[position:])
                return
            self._large = False
            yield bytearray(data[position : position + size])
            position += size
        self._prefix = bytes(data[position:])

    def _start(self, size: int, begun: memoryview) -> None:
        self._frame = self._pool.take(min(size, max(FRAME_STEP_BYTES, 2 * len(begun))))
        self._frame[: len(begun)] = begun
        self._frame_size = size
        self._filled = len(begun)
