"""What the log of a node says when the disk refuses a write, and what to do about it."""

import errno
import logging

from chronik.broker.partition import Partition

log = logging.getLogger(__name__)

_HELP = {
    errno.ENOSPC: "free some space; writes go on by themselves",
    errno.EROFS: "the file system is read-only; remount it, writes go on by themselves",
    errno.EDQUOT: "the disk quota is used up; raise it, writes go on by themselves",
}


def say_refused(partition: Partition, error: Exception) -> None:
    """An error that is not the disk's comes with where it was raised."""
    number = error.errno if isinstance(error, OSError) else None
    log.error(
        "cannot write %s-%d: %r: %s",
        partition.topic,
        partition.index,
        error,
        _HELP.get(number or 0, "check the disk; writes are tried again as they come"),
        exc_info=None if isinstance(error, OSError) else error,
    )
