"""Frames out of a byte stream: a four-byte length, then that many bytes.

Bytes are received into a buffer that many connections share; whole frames are copied out of it, and
a frame that is not whole yet gets a buffer of its own, into which the socket reads directly. So
an idle connection costs no buffer, and each frame owns its bytes. Large buffers are used again:
fresh memory costs the kernel more than the copy into it. A buffer has room for what is announced
only while the node has memory to spare; else it grows with what has arrived.
"""

import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator

from chronik.model import limits
from chronik.net.budget import Budget

_LENGTH = struct.Struct(">i")
FRAME_STEP_BYTES = 4 * 1024 * 1024
"""A frame's buffer doubles from here as bytes arrive: a length alone allocates little."""
SCARCE_STEP_BYTES = 16 * 1024
"""The same where frames under way hold much already."""
POOLED_BYTES_MIN = 128 * 1024
POOLED_BYTES_MAX = limits.REPLICA_RESPONSE_BYTES_MAX + 64 * 1024
"""A follower's largest answer, all around the records included."""
POOLED_STEP_BYTES = 128 * 1024
"""Their sizes are rounded up to this: so one fits for the next, which is seldom as long."""
POOLED_TOTAL_BYTES_MAX = 32 * 1024 * 1024
"""As many as wait for the disk when a fast client sends: memory for one that is made anew costs
about as much as to receive, check and write what it holds."""
POOLED_BUSY_MAX = 8
"""The oldest come first: where so many are still looked at, the others are too."""
_ZEROS = memoryview(bytes(POOLED_BYTES_MAX))
"""Never written to, so it takes no memory: all its pages are the system's one page of zeros."""
LARGE_START_BYTES = 16 * 1024
"""Received at once where a large frame is expected: what is more would be copied out again."""


class FrameError(ValueError):
    """A length that no frame has: nothing after it in the stream means anything."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.size = size


class FramePool:
    """Buffers for frames; large ones that are done with are used for the next of their size."""

    __slots__ = ("_budget", "_frames", "bytes")

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget if budget is not None else Budget()
        self._frames: deque[bytearray] = deque()
        self.bytes = 0
        """Of those that are kept, whether or not somebody still looks at them."""

    def begin(self, size: int, begun: int) -> bytearray:
        """The first buffer of a frame of this size, of which some bytes are here."""
        step = FRAME_STEP_BYTES if self._budget.roomy else SCARCE_STEP_BYTES
        return self.take(min(size, max(step, 2 * begun)))

    def give(self, frame: bytearray) -> None:
        """Nobody asks for this frame any more; somebody may still look at its bytes."""
        if not POOLED_BYTES_MIN <= len(frame) <= POOLED_BYTES_MAX:
            return
        self._frames.append(frame)
        self.bytes += _room(frame)
        while self.bytes > POOLED_TOTAL_BYTES_MAX:
            self.bytes -= _room(self._frames.popleft())

    def take(self, size: int) -> bytearray:
        """A buffer of this size, whatever is in it."""
        if not POOLED_BYTES_MIN <= size <= POOLED_BYTES_MAX:
            return bytearray(size)
        frames, busy = self._frames, 0
        for _ in range(len(frames)):
            frame = frames.popleft()
            room = _room(frame)
            if room // 2 < size <= room:
                if _resized(frame, size):
                    self.bytes -= room
                    return frame
                busy += 1
            frames.append(frame)
            if busy == POOLED_BUSY_MAX:
                break
        fresh = bytearray(-(-size // POOLED_STEP_BYTES) * POOLED_STEP_BYTES)
        del fresh[size:]
        return fresh


_OVERHEAD = sys.getsizeof(bytearray()) + 1
"""What a bytearray takes besides its room for bytes: it ends with a zero that does not count."""


def _room(frame: bytearray) -> int:
    """Bytes that the buffer has memory for."""
    return sys.getsizeof(frame) - _OVERHEAD


def _resized(frame: bytearray, size: int) -> bool:
    """False where a view of the frame is alive: a bytearray cannot change its length then.

    Its memory stays as it is: there is room for the size, of which it needs more than half.
    """
    try:
        frame.pop()
    except BufferError:
        return False
    if size < len(frame):
        del frame[size:]
    elif size > len(frame):
        frame += _ZEROS[: size - len(frame)]
    return True


class FrameReader:
    """One stream. Ask `buffer` where to receive, then tell `received` how much came."""

    __slots__ = (
        "_filled",
        "_frame",
        "_large",
        "_pool",
        "_prefix",
        "_shared",
        "frame_size",
        "held",
    )

    def __init__(self, shared: memoryview, pool: FramePool | None = None) -> None:
        self._shared = shared
        self._pool = pool if pool is not None else FramePool()
        self._large = False
        """The last frame was large: the next one probably is, and wants a buffer of its own."""
        self._prefix = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self.frame_size = 0
        """What the last frame under way was announced to be."""
        self.held = 0
        """Bytes of the buffer of the frame under way; 0 where there is none."""

    def buffer(self) -> memoryview:
        """Where the next bytes go: the frame under way, or the buffer that all share."""
        if self._frame is not None:
            if self._filled == self.held:
                self._grow(self._frame)
            return memoryview(self._frame)[self._filled :]
        return self._shared[:LARGE_START_BYTES] if self._large else self._shared

    def received(self, nbytes: int) -> Iterable[bytearray]:
        """The frames that these bytes complete. Take them all before the next `buffer`."""
        if self._frame is None:
            if 4 < nbytes < POOLED_BYTES_MIN and not self._prefix:
                (size,) = _LENGTH.unpack_from(self._shared)
                if size == nbytes - 4:  # one small frame and nothing else: what comes most often
                    self._large = False
                    return (bytearray(self._shared[4:nbytes]),)
            return self._cut(self._shared[:nbytes])
        self._filled += nbytes
        if self._filled < self.frame_size:
            return ()
        frame, self._frame = self._frame, None
        self.held = 0
        self._large = len(frame) >= POOLED_BYTES_MIN
        return (frame,)

    def forget(self) -> None:
        """The stream ended."""
        self._frame = None
        self.held = 0

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
            whole = data[position : position + size]
            self._large = size >= POOLED_BYTES_MIN
            yield self._pooled(whole) if self._large else bytearray(whole)
            position += size
        self._prefix = bytes(data[position:])

    def _pooled(self, whole: memoryview) -> bytearray:
        frame = self._pool.take(len(whole))
        memoryview(frame)[:] = whole  # a slice of the frame itself would copy the bytes twice
        return frame

    def _start(self, size: int, begun: memoryview) -> None:
        self._frame = self._pool.begin(size, len(begun))
        memoryview(self._frame)[: len(begun)] = begun
        self.held = len(self._frame)
        self.frame_size = size
        self._filled = len(begun)

    def _grow(self, full: bytearray) -> None:
        """Not before the next read: a connection that must wait takes no more memory."""
        self.held = min(self.frame_size, 2 * len(full))
        self._frame = bytearray(self.held)
        self._frame[: len(full)] = full
