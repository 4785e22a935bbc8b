"""One small read for many: consumers that follow the end of a log all ask for the same bytes."""

from chronik.model.limits import SHARED_READ_BYTES_MAX
from chronik.storage.segment import Read

Asked = tuple[int, int, int, bool, int]
"""Offset, most bytes, high watermark, whether the first batch must be whole, cuts of the log."""


class SharedRead:
    """The last small read of a partition. What is committed does not change, so it stays true
    until the log is cut: after an unclean election other records may take the same offsets.

    Its bytes are a copy: a slice of the mapped file would keep a deleted segment on the disk.
    """

    __slots__ = ("_asked", "_read")

    def __init__(self) -> None:
        self._asked: Asked | None = None
        self._read: Read | None = None

    def find(self, asked: Asked) -> Read | None:
        """What was read when the same was asked before."""
        return self._read if asked == self._asked else None

    def keep(self, asked: Asked, read: Read) -> Read:
        """The read itself, to be found again if it is small."""
        if 0 < read.size <= SHARED_READ_BYTES_MAX:
            read = Read([memoryview(b"".join(read.slices))], *read[1:])
            self._asked, self._read = asked, read
        return read
