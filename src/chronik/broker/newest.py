"""What was written last, for the followers: each asks for it at once, and none needs the file.

Only small writes, and only until they are committed: so this costs little memory, and none where
nothing is written. It belongs to the leader of one epoch and goes with its role.
"""

from typing import NamedTuple

from chronik.model.limits import BRIEF_ANSWER_BYTES_MAX
from chronik.storage.segment import Read
from chronik.storage.write import Write


class Newest(NamedTuple):
    """The batches of one write, and where they lie."""

    base_offset: int
    end_offset: int
    read: Read

    def fits(self, offset: int, max_bytes: int, log_end: int) -> bool:
        """True where this is all there is from that offset on, and not too much."""
        base_offset, end_offset, read = self
        return offset == base_offset and end_offset == log_end and read.size <= max_bytes


def newest_of(write: Write) -> Newest | None:
    """A copy of it: the frames that brought it are not kept. None where it is large."""
    size = write.size
    if size > BRIEF_ANSWER_BYTES_MAX or len(write.parts) != 1:
        return None
    part = write.parts[0]
    offset, end_offset = write.base_offset, write.end_offset
    data = memoryview(b"".join(part.buffers))
    place = part.segment.base_offset, part.position
    read = tuple.__new__(Read, ([data], size, offset, *place, True))
    return tuple.__new__(Newest, (offset, end_offset, read))
