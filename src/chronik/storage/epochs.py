"""Which leader epoch began at which offset: what followers are truncated by (KIP-101, KIP-320).

Kept per log in `leader-epoch-checkpoint`. The batches carry their epoch too, so entries younger
than the file are found again by the recovery scan.
"""

from bisect import bisect_right

from chronik.storage.checkpoints import read_lines, write_lines
from chronik.storage.fs import FileSystem, join

EPOCH_FILE = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochCache:
    """Epochs and their first offsets, both strictly increasing."""

    __slots__ = ("_epochs", "_starts", "changed")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False
        """True while the file does not know all of it."""

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def after(self, new: list[tuple[int, int]], base_offset: int) -> list[tuple[int, int]]:
        """The entries that there are once `new` ones write from `base_offset` on."""
        if not new:
            return self.entries()
        return [entry for entry in self.entries() if entry[1] < base_offset] + new

    @property
    def latest(self) -> int:
        """The youngest epoch; -1 where the log knows none."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Epoch `epoch` writes from `start_offset` on; older epochs' claims beyond it end."""
        if epoch < 0 or epoch <= self.latest:
            return
        self.truncate_end(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changed = True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and where it ended, as OffsetsForLeaderEpoch answers.

        (-1, -1) where nothing is known; an epoch older than all known ones ends where these begin.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def divergence(
        self, last_epoch: int, offset: int, log_start: int, log_end: int
    ) -> tuple[int, int] | None:
        """(epoch, end offset) to which a follower's log is alike; None where all of it is.

        An epoch younger than all that are here never reached this log: what the follower has from
        before it is alike up to this log's end. Naming less would cut what is committed.
        """
        if last_epoch < 0 or (last_epoch == self.latest and offset <= log_end):
            return None
        epoch, end_offset = self.end_offset_for(last_epoch, log_end)
        if epoch < 0:
            epoch, end_offset = self.latest, log_end
        if epoch == last_epoch and offset <= end_offset:
            return None
        return max(epoch, 0), max(end_offset, log_start)

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 where that is not known."""
        entry = bisect_right(self._starts, offset) - 1
        return self._epochs[entry] if entry >= 0 else UNDEFINED_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Forgets epochs that begin at or after the log's new end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.changed = True

    def truncate_start(self, start_offset: int) -> None:
        """Forgets epochs that ended at or before the log's new start."""
        entry = bisect_right(self._starts, start_offset) - 1
        if entry < 0 or self._starts[entry] == start_offset == self._starts[0]:
            return
        del self._starts[:entry], self._epochs[:entry]
        self._starts[0] = start_offset
        self.changed = True

    def clear(self) -> None:
        """Forgets everything: the log begins anew elsewhere."""
        self.changed = self.changed or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()


def write_epochs(
    fs: FileSystem, directory: str, entries: list[tuple[int, int]], *, sync: bool
) -> None:
    """Replaces the log's epoch file."""
    lines = [f"{epoch} {start}" for epoch, start in entries]
    write_lines(fs, join(directory, EPOCH_FILE), EPOCH_FILE, lines, sync=sync)


def read_epochs(fs: FileSystem, directory: str) -> EpochCache | None:
    """The cache in the file; None where there is none. CorruptCheckpointError where damaged."""
    lines = read_lines(fs, join(directory, EPOCH_FILE), EPOCH_FILE)
    if lines is None:
        return None
    cache = EpochCache()
    for line in lines:
        epoch, start = line.split(" ")
        cache.assign(int(epoch), int(start))
    cache.changed = False
    return cache
