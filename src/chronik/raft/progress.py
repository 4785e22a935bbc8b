"""What a leader knows about one follower's log, and how much it may send without an answer.

PROBE      one message per heartbeat, to find where the logs meet
REPLICATE  optimistic: `next` runs ahead of `match`, bounded by the inflight window
SNAPSHOT   nothing is sent until the snapshot is confirmed, refused or given up
"""

from collections import deque
from enum import Enum


class ProgressState(Enum):
    """How entries are sent to a follower."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Inflights:
    """The window of appends sent and not yet acknowledged, bounded in messages and bytes."""

    __slots__ = ("_bytes", "_sent", "bytes_max", "messages_max")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self._sent: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def is_full(self) -> bool:
        """True if no further message with entries may be sent."""
        return len(self._sent) >= self.messages_max or self._bytes >= self.bytes_max

    def add(self, last_index: int, size: int) -> None:
        """One more message, whose last entry is `last_index`."""
        assert not self.is_full, "sent past a full window"
        self._sent.append((last_index, size))
        self._bytes += size

    def free_to(self, index: int) -> None:
        """Everything up to `index` has arrived."""
        while self._sent and self._sent[0][0] <= index:
            self._bytes -= self._sent.popleft()[1]

    def reset(self) -> None:
        """Forgets the window, for a follower that is probed again."""
        self._sent.clear()
        self._bytes = 0


class Progress:
    """One follower (or learner, or the leader itself) as the leader sees it."""

    __slots__ = (
        "inflights",
        "is_learner",
        "is_paused",
        "is_recently_active",
        "match",
        "next",
        "snapshot_index",
        "snapshot_ticks",
        "state",
    )

    def __init__(self, next_index: int, inflights: Inflights, *, is_learner: bool = False) -> None:
        self.match = 0
        self.next = next_index
        self.state = ProgressState.PROBE
        self.snapshot_index = 0
        self.snapshot_ticks = 0
        self.is_recently_active = True
        self.is_paused = False
        self.inflights = inflights
        self.is_learner = is_learner

    @property
    def can_send(self) -> bool:
        """False while an answer (or the next heartbeat's) is awaited."""
        return self.state is not ProgressState.SNAPSHOT and not self.is_paused

    @property
    def can_send_entries(self) -> bool:
        """False for a full window; empty appends still go, to learn what arrived."""
        return self.state is not ProgressState.REPLICATE or not self.inflights.is_full

    def become_probe(self) -> None:
        """Looks for the point where the logs meet, from what is known for sure."""
        pending = self.snapshot_index if self.state is ProgressState.SNAPSHOT else 0
        self._enter(ProgressState.PROBE)
        self.next = max(self.match, pending) + 1

    def become_replicate(self) -> None:
        """The logs meet at `match`: from here entries are streamed."""
        self._enter(ProgressState.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """A snapshot of `index` was sent."""
        self._enter(ProgressState.SNAPSHOT)
        self.snapshot_index = index
        self.next = index + 1

    def _enter(self, state: ProgressState) -> None:
        self.is_paused = False
        self.snapshot_index = 0
        self.snapshot_ticks = 0
        self.state = state
        self.inflights.reset()

    def sent(self, entries: int, size: int) -> None:
        """Notes an append with so many entries."""
        if self.state is ProgressState.PROBE:
            # One question at a time: the answer or a heartbeat's answer resumes.
            self.is_paused = True
            return
        assert self.state is ProgressState.REPLICATE
        if entries:
            self.next += entries
            self.inflights.add(self.next - 1, size)
        # A full window is resumed by an acknowledgement or by a heartbeat's answer.
        self.is_paused = self.inflights.is_full

    def acknowledge(self, index: int) -> bool:
        """Everything up to `index` is on the follower's disk; False for old news."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.is_paused = False
        return True

    def step_back(self, rejected: int, hint: int) -> bool:
        """The follower refused `rejected`; False for a refusal that is out of date."""
        if self.state is ProgressState.REPLICATE:
            if rejected <= self.match:
                return False
            # A message was lost: what is acknowledged is the place to start from again.
            self.next = self.match + 1
            return True
        if self.next - 1 != rejected:
            return False
        next_index = max(min(rejected, hint + 1), self.match + 1)
        if next_index == self.next:
            # It refuses what it has acknowledged: its log was lost. Asking again at once would go
            # on at the speed of the network, so the next heartbeat's answer decides.
            return False
        self.next = next_index
        self.is_paused = False
        return True
