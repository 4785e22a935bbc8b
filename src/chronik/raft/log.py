"""The replicated log in memory: which part is on disk, committed, applied, compacted.

      base            persisted     last
       |  entries ...     |  ....    |        base < first kept entry; its term is remembered
       applied <= committed <= last           a leader counts itself only up to `persisted`

The driver keeps the durable copy (`storage/raft_store.py`) and says what has reached it.
"""

from collections.abc import Sequence

from chronik.raft.messages import Entry, HardState, Snapshot


class LogDamaged(ValueError):  # noqa: N818 - a state of the disk, not of the call
    """The stored log does not hold what the node has promised: it must not take part."""


class RaftLog:
    """Entries after `base_index`; the snapshot covers at least everything up to there."""

    __slots__ = (
        "applied",
        "base_index",
        "base_term",
        "committed",
        "entries",
        "pending_snapshot",
        "persisted",
        "snapshot",
    )

    def __init__(self, hard_state: HardState, snapshot: Snapshot, entries: Sequence[Entry]) -> None:
        self.snapshot = snapshot
        self.base_index = snapshot.index
        self.base_term = snapshot.term
        self.entries = list(entries)
        self.pending_snapshot: Snapshot | None = None
        self._check_stored(hard_state)
        self.persisted = self.last_index
        self.committed = max(hard_state.commit, snapshot.index)
        self.applied = snapshot.index

    def _check_stored(self, hard_state: HardState) -> None:
        previous_term = self.base_term
        for position, entry in enumerate(self.entries):
            if entry.index != self.base_index + 1 + position:
                raise LogDamaged(
                    f"entry {entry.index} where {self.base_index + 1 + position} was due"
                )
            if entry.term < previous_term:
                raise LogDamaged(f"term falls to {entry.term} at entry {entry.index}")
            previous_term = entry.term
        if hard_state.commit > self.last_index:
            raise LogDamaged(f"commit {hard_state.commit} is past the last entry {self.last_index}")
        if previous_term > hard_state.term:
            raise LogDamaged(f"an entry of term {previous_term}, the node was in {hard_state.term}")

    @property
    def first_index(self) -> int:
        """The first entry that can be sent."""
        return self.base_index + 1

    @property
    def last_index(self) -> int:
        """The last entry, on disk or not."""
        return self.base_index + len(self.entries)

    @property
    def committed_term(self) -> int:
        """Term of the entry at the commit index, which is never compacted past."""
        term = self.term(self.committed)
        assert term is not None
        return term

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self.entries[-1].term if self.entries else self.base_term

    def term(self, index: int) -> int | None:
        """Term of the entry at `index`; None where it was compacted away or does not exist yet."""
        if index == self.base_index:
            return self.base_term
        if self.base_index < index <= self.last_index:
            return self.entries[index - self.base_index - 1].term
        return None

    def matches(self, index: int, term: int) -> bool:
        """True if the entry at `index` is of `term`: the logs are then equal up to it (5.3)."""
        return self.term(index) == term

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """True if a candidate with that last entry has at least what this log has (5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def slice(self, first: int, last: int, bytes_max: int | None = None) -> tuple[Entry, ...]:
        """Entries first..last, cut to `bytes_max` but never to nothing."""
        assert self.first_index <= first, f"{first} was compacted, first is {self.first_index}"
        start, end = first - self.first_index, last - self.base_index
        if bytes_max is not None:
            end = self._cut(start, end, bytes_max)
        return tuple(self.entries[start:end])

    def _cut(self, start: int, end: int, bytes_max: int) -> int:
        # A follower may be far behind: only what is sent is looked at.
        size = 0
        for position in range(start, end):
            size += len(self.entries[position].data)
            if size > bytes_max and position > start:
                return position
        return end

    def append(self, entries: Sequence[Entry]) -> None:
        """Puts entries after the last one."""
        for entry in entries:
            assert entry.index == self.last_index + 1, "a hole in the log"
            assert entry.term >= self.last_term, "terms fall"
            self.entries.append(entry)

    def merge(self, entries: Sequence[Entry]) -> None:
        """A leader's entries: a conflict cuts what follows it, an old message cuts nothing."""
        for position, entry in enumerate(entries):
            if not self.matches(entry.index, entry.term):
                self.truncate(entry.index)
                self.append(entries[position:])
                return

    def truncate(self, index: int) -> None:
        """Removes the entry at `index` and all after it."""
        if index > self.last_index:
            return
        assert index > self.committed, (
            f"entry {index} is committed ({self.committed}), yet conflicts"
        )
        del self.entries[index - self.first_index :]
        self.persisted = min(self.persisted, index - 1)

    def find_conflict(self, index: int, term: int) -> tuple[int, int]:
        """The highest (index, term) here not after `index` and not of a later term than `term`.

        The other log cannot match in between, so a whole term is skipped per round trip (5.3).
        """
        index = min(index, self.last_index)
        while index > self.base_index:
            found = self.term(index)
            assert found is not None
            if found <= term:
                return index, found
            index -= 1
        if index == self.base_index and self.base_term <= term:
            return index, self.base_term
        return index, 0

    def commit_to(self, index: int) -> bool:
        """Moves the commit index forward, never back."""
        if index <= self.committed:
            return False
        assert index <= self.last_index, f"commit {index} is past the last entry {self.last_index}"
        self.committed = index
        return True

    def commit_counted(self, index: int, term: int) -> bool:
        """Commits what a majority has, if it is of the leader's own term (5.4.2, figure 8)."""
        return self.matches(index, term) and self.commit_to(index)

    def unpersisted(self) -> tuple[Entry, ...]:
        """What the next Ready asks the driver to write."""
        return tuple(self.entries[self.persisted - self.base_index :])

    def persisted_to(self, index: int, term: int) -> None:
        """The driver has written the entry; ignored if it was replaced meanwhile."""
        if index > self.persisted and self.matches(index, term):
            self.persisted = index

    def committed_entries(self, bytes_max: int) -> tuple[Entry, ...]:
        """What to apply next; nothing while a snapshot waits, it covers them."""
        if self.pending_snapshot is not None or self.applied >= self.committed:
            return ()
        return self.slice(self.applied + 1, self.committed, bytes_max)

    def applied_to(self, index: int) -> None:
        """The driver has applied everything up to `index`."""
        assert self.applied <= index <= self.committed, "applied runs from past to committed"
        self.applied = index

    def restore(self, snapshot: Snapshot) -> None:
        """A leader's snapshot replaces the whole log (section 7)."""
        assert snapshot.index > self.committed, "a snapshot would undo what is committed"
        self.entries.clear()
        self.base_index, self.base_term = snapshot.index, snapshot.term
        self.persisted = self.committed = snapshot.index
        self.snapshot = self.pending_snapshot = snapshot

    def snapshot_persisted(self, snapshot: Snapshot) -> None:
        """The driver has written and applied the snapshot."""
        if self.pending_snapshot == snapshot:
            self.pending_snapshot = None
        self.applied = max(self.applied, snapshot.index)

    def compact(self, snapshot: Snapshot, keep: int) -> None:
        """Takes over an own snapshot; the last `keep` entries before it stay for slow followers."""
        assert snapshot.index <= self.applied, "a snapshot of what is not applied"
        if snapshot.index <= self.snapshot.index:
            return
        assert self.matches(snapshot.index, snapshot.term)
        self.snapshot = snapshot
        base = min(snapshot.index - keep, self.persisted)
        base_term = self.term(base)
        if base <= self.base_index or base_term is None:
            return
        del self.entries[: base - self.base_index]
        self.base_index, self.base_term = base, base_term
