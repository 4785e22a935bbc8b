"""A driver in memory: a log that commits, fails or loses writes when a test says so."""

from collections import deque
from itertools import count

from chronik.groups.commands import Command
from chronik.groups.config import GroupConfig
from chronik.groups.coordinator import GroupCoordinator
from chronik.groups.durable import DurableState
from chronik.groups.records import Record, decode, encode
from chronik.groups.responses import Output, Reply, Write
from chronik.model.errors import ErrorCode

START_MS = 1_000_000


class Driver:
    """Keeps the contract of the room's card; `hold` leaves writes uncommitted."""

    def __init__(self, config: GroupConfig, *, hold: bool = False) -> None:
        self.config = config
        self.hold = hold
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.queue: deque[Write] = deque()
        self.replies: list[Reply] = []
        self.committed_writes: list[Write] = []
        self._uuids = count(1)
        self.coordinator = self._load()

    def step(self, command: Command, reply_to: object) -> None:
        """One command."""
        self._take(self.coordinator.step(command, reply_to, self.now_ms))

    def commit_next(self) -> None:
        """The oldest held write gets below the high watermark."""
        write = self.queue.popleft()
        self.log.extend(encode(record) for record in write.records)
        self.committed_writes.append(write)
        self._take(self.coordinator.committed(write, self.now_ms))

    def fail_next(self, error: ErrorCode) -> None:
        """The oldest held write is refused."""
        self._take(self.coordinator.failed(self.queue.popleft(), error, self.now_ms))

    def advance(self, duration_ms: int) -> None:
        """Lets time pass, stopping at every deadline."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.coordinator.next_deadline()) is not None:
            if deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self._take(self.coordinator.on_time(self.now_ms))
        self.now_ms = end_ms

    def crash(self, keep: int = 0) -> None:
        """The node dies; `keep` of the held writes reached the log, the others did not.

        Clients of the dead node see their connections break: what they waited for is not answered.
        """
        for write in list(self.queue)[:keep]:
            self.log.extend(encode(record) for record in write.records)
            self.committed_writes.append(write)
        self.queue.clear()
        self.coordinator = self._load()

    def unload(self) -> None:
        """Another node leads; this one answers what waits."""
        self._take(self.coordinator.unload(self.now_ms))
        self.queue.clear()

    def take_replies(self) -> list[Reply]:
        """The replies since the last look."""
        replies, self.replies = self.replies, []
        return replies

    def fold(self) -> DurableState:
        """What a reader of the log reaches."""
        state = DurableState()
        for record in self.records():
            state.replay(record)
        return state

    def records(self) -> list[Record]:
        """The log, decoded."""
        decoded = [decode(key, value) for key, value in self.log]
        return [record for record in decoded if record is not None]

    def _load(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.config, lambda: str(next(self._uuids)))
        coordinator.load(self.records())
        self.coordinator = coordinator
        self._take(coordinator.loaded(self.now_ms))
        return coordinator

    def _take(self, output: Output) -> None:
        self.replies.extend(output.replies)
        self.queue.extend(output.writes)
        while self.queue and not self.hold:
            self.commit_next()
