"""Which writes the event loop does itself: copies into the page cache that wait for no disk."""

from chronik.broker.clock import Clock
from chronik.broker.partition import Partition
from chronik.broker.syncing import Outcome
from chronik.model import limits
from chronik.storage.write import Write


class Copies:
    """Watches how long they take: after a slow one, disk threads do them for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads_until_ns = 0
        """Until then a write may take long even without a sync."""
        self.pause_ms = 0
        """How long disk threads took the quick writes over when one was last slow."""
        self.others_writing = 0
        """Who else writes a lot to the disk just now: then, too, disk threads do the writes."""

    @property
    def are_quick(self) -> bool:
        """True where a copy is not expected to wait for the disk."""
        return not self.others_writing and self._clock.monotonic_ns() >= self._threads_until_ns

    def is_quick(self, partition: Partition, write: Write) -> bool:
        """True where the event loop itself may do this one."""
        return (
            write.size <= limits.WRITE_ON_LOOP_BYTES_MAX
            and write.is_plain
            and partition.has_directory
            and self.are_quick
        )

    def watch(self, outcome: Outcome) -> None:
        """Learns from one that was done."""
        if not _is_slow(outcome):
            return
        now_ns = self._clock.monotonic_ns()
        quick_for_ms = (now_ns - self._threads_until_ns) // 1_000_000
        if quick_for_ms >= limits.WRITE_ON_LOOP_PAUSE_MS_MAX:
            self.pause_ms = 0
        longer_ms = max(limits.WRITE_ON_LOOP_PAUSE_MS, 2 * self.pause_ms)
        self.pause_ms = min(longer_ms, limits.WRITE_ON_LOOP_PAUSE_MS_MAX)
        self._threads_until_ns = now_ns + self.pause_ms * 1_000_000


def _is_slow(outcome: Outcome) -> bool:
    """Whether the next write like this one, done by the event loop, would hold it up."""
    write, duration_us = outcome.write, outcome.duration_us
    # What creates files or syncs is slow by its nature, and says nothing of the others.
    if write.synced or not write.is_plain:
        return False
    expected_us = write.size // limits.WRITE_ON_LOOP_BYTES_PER_US
    return duration_us > limits.WRITE_ON_LOOP_US_MAX + expected_us
