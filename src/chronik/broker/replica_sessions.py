"""A leader's side of its followers' fetch sessions (KIP-227): one session per follower.

A session looks only at what moved. A partition tells its session when its log's end or its
watermark moves; until then it costs nothing, however many there are.
"""

from collections.abc import Callable
from typing import Protocol

from chronik.broker.fetch_sessions import EPOCH_MAX, FINAL_EPOCH, INITIAL_EPOCH, SessionError
from chronik.broker.partition import Partition
from chronik.model.errors import ErrorCode
from chronik.wire.fetch import FetchPartition, FetchRequest

TIMER_STEP_S = 0.001
"""The event loop's timers count in milliseconds: one may come that much early."""
_NO_SESSION = frozenset((FINAL_EPOCH, INITIAL_EPOCH))

Key = tuple[bytes, int]


class Followed:
    """A partition that a follower asks for: from where, and what it was told of it last."""

    __slots__ = (
        "_session",
        "key",
        "partition",
        "told_log_start",
        "told_watermark",
        "wanted",
    )

    def __init__(self, session: "ReplicaSession", key: Key, wanted: FetchPartition) -> None:
        self._session = session
        self.key = key
        self.wanted = wanted
        self.partition: Partition | None = None
        """The one whose moves are noticed."""
        self.told_watermark = self.told_log_start = -1

    def moved(self) -> None:
        """The partition has something new."""
        session = self._session
        session.moved[self] = None
        if session.waiting is not None:
            session.waiting.wake()

    def watch(self, partition: Partition | None) -> None:
        """Notices the moves of this one from now on."""
        if self.partition is not None:
            self.partition.follower_waiters.pop(self.moved, None)
        self.partition = partition
        if partition is not None:
            partition.follower_waiters[self.moved] = None

    def has_data(self) -> bool:
        """True where the leader's disk has more than the follower's."""
        return (
            self.partition is not None and self.wanted.fetch_offset < self.partition.log.end_offset
        )

    def is_counted(self, follower: int) -> bool:
        """False where the leader did not know this replica when it asked."""
        if self.partition is None:
            return True
        known = self.partition.state.followers.get(follower)
        return known is not None and known.end >= 0

    def told(self, partition: Partition) -> None:
        """The follower knows what is true now."""
        state = partition.state
        self.told_watermark = state.high_watermark
        self.told_log_start = state.log_start

    def has_news(self) -> bool:
        """True where the follower does not know the watermark or the log start."""
        if self.partition is None:
            return False
        state = self.partition.state
        return state.high_watermark != self.told_watermark or state.log_start != self.told_log_start


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """It will not."""


class Timers(Protocol):
    """What a session needs of the event loop."""

    def time(self) -> float:
        """Seconds, of the loop's clock."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Calls it at that time."""


class Waiting(Protocol):
    """A fetch that waits for something to move."""

    def wake(self) -> None:
        """Something moved."""

    def answer_now(self) -> None:
        """Ends it, whatever there is to say."""


class ReplicaSession:
    """One follower's partitions, which of them are to be looked at, and the fetch that waits.

    Its timers are for all fetches: one that comes too early for the fetch of now sleeps again.
    """

    __slots__ = (
        "_expires_at_s",
        "_expiry",
        "_followed",
        "_loop",
        "_news_at_s",
        "_news_timer",
        "epoch",
        "follower",
        "moved",
        "session_id",
        "waiting",
    )

    def __init__(self, follower: int, session_id: int, loop: Timers) -> None:
        self.follower = follower
        self.session_id = session_id
        self._loop = loop
        self.epoch = INITIAL_EPOCH + 1
        self._followed: dict[Key, Followed] = {}
        self.moved: dict[Followed, None] = {}
        """To be looked at; those that had data go to the end."""
        self.waiting: Waiting | None = None
        self._expires_at_s = 0.0
        self._expiry: Timer | None = None
        self._news_at_s: float | None = None
        """When the follower is to be told of a watermark, if no data comes before."""
        self._news_timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def update(self, request: FetchRequest) -> None:
        """Takes over what the request adds, changes and forgets."""
        for wanted in request.partitions:
            key = (wanted.topic_id or b"", wanted.index)
            followed = self._followed.get(key)
            if followed is None:
                followed = self._followed[key] = Followed(self, key, wanted)
            elif followed.wanted.current_leader_epoch != wanted.current_leader_epoch:
                # What it was told of an earlier epoch it may have had no use for.
                followed.told_watermark = followed.told_log_start = -1
            followed.wanted = wanted
            self.moved[followed] = None
        for topic, index in request.forgotten:
            assert isinstance(topic, bytes)
            followed = self._followed.pop((topic, index), None)
            if followed is not None:
                followed.watch(None)
                self.moved.pop(followed, None)

    def done_with(self, followed: Followed) -> None:
        """Costs nothing until it moves, unless there is more; or its follower is yet to be counted.

        A new replica may know its role before the leader does, and asks for an idle partition only
        once: each of its fetches counts for such a partition until the leader knows it.
        """
        if not followed.has_data() and followed.is_counted(self.follower):
            self.moved.pop(followed, None)

    def served(self, followed: Followed) -> None:
        """It had data: the others get their turn first."""
        moved = self.moved
        if len(moved) > 1 or followed not in moved:
            moved.pop(followed, None)
            moved[followed] = None

    # -- waiting

    def wait(self, waiting: Waiting, wait_s: float) -> None:
        """Waits until something moves, but no longer than that."""
        loop = self._loop
        self.waiting = waiting
        self._expires_at_s = loop.time() + wait_s
        if self._expiry is None:
            self._expiry = loop.call_at(self._expires_at_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if self.waiting is None:
            return
        loop = self._loop
        if loop.time() < self._expires_at_s - TIMER_STEP_S:
            self._expiry = loop.call_at(self._expires_at_s, self._expire)
        else:
            self.waiting.answer_now()

    def tell_soon(self, delay_s: float) -> None:
        """A watermark moved: the waiting fetch is answered after this time at the latest."""
        if self._news_at_s is None:
            loop = self._loop
            self._news_at_s = loop.time() + delay_s
            if self._news_timer is None:
                self._news_timer = loop.call_at(self._news_at_s, self._tell)

    def news_told(self) -> None:
        """An answer took it along."""
        self._news_at_s = None

    def _tell(self) -> None:
        self._news_timer = None
        if self._news_at_s is None or self.waiting is None:
            return
        loop = self._loop
        if loop.time() < self._news_at_s - TIMER_STEP_S:
            self._news_timer = loop.call_at(self._news_at_s, self._tell)
        else:
            self.waiting.answer_now()

    def close(self) -> None:
        """The session is over: nothing is watched for it, and nobody waits."""
        if self.waiting is not None:
            self.waiting.answer_now()
        for followed in self._followed.values():
            followed.watch(None)
        for timer in (self._expiry, self._news_timer):
            if timer is not None:
                timer.cancel()


class ReplicaSessions:
    """The sessions of a leader, by follower."""

    def __init__(self, loop: Timers, new_id: Callable[[], int]) -> None:
        self._loop = loop
        self._new_id = new_id
        self._sessions: dict[int, ReplicaSession] = {}

    def resolve(self, request: FetchRequest) -> ReplicaSession:
        """The session of this request, with what it changes taken over."""
        follower, epoch = request.replica_id, request.session_epoch
        session = self._sessions.get(follower)
        if epoch in _NO_SESSION:
            if session is not None:
                session.close()
            session = ReplicaSession(follower, max(1, self._new_id()), self._loop)
            self._sessions[follower] = session
        elif session is None or session.session_id != request.session_id:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session.epoch != epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        else:
            session.epoch = epoch % EPOCH_MAX + 1
        session.update(request)
        return session

    def nudge(self, session_id: int) -> None:
        """Has the waiting fetch of a session answered at once: its follower has more to ask."""
        for session in self._sessions.values():
            if session.session_id == session_id and session.waiting is not None:
                session.waiting.answer_now()
