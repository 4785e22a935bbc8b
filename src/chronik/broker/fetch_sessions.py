"""Fetch sessions (KIP-227): a client names its partitions once, later only what changed.

An answer within a session leaves out the partitions that have nothing new. The cache is bounded;
when it is full of recently used sessions, a client simply gets no session and fetches in full.
Followers have sessions of their own kind, see `replica_sessions.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from chronik.model.errors import ErrorCode
from chronik.model.limits import FETCH_SESSIONS_MAX
from chronik.wire.fetch import FetchPartition, FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 0x7FFFFFFF
EVICT_AFTER_MS = 120_000
"""A session unused for this long makes room for a new one (min.incremental.fetch.session...)."""

Key = tuple[str | bytes, int]


class SessionError(Exception):
    """The client's idea of its session is not ours; it starts a new one."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Sent:
    """What the client was last told of a partition; -1 before the first time."""

    high_watermark: int = -1
    log_start: int = -1


@dataclass(slots=True)
class FetchSession:
    """One client's partitions in the order in which they are read, and what it knows of them."""

    session_id: int
    uses_topic_ids: bool
    epoch: int = INITIAL_EPOCH + 1
    used_ms: int = 0
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    sent: dict[Key, Sent] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Takes over what the request adds, changes and forgets."""
        for partition in request.partitions:
            key = key_of(partition)
            former = self.partitions.get(key)
            if former is None or former.current_leader_epoch != partition.current_leader_epoch:
                # What it was told of an earlier epoch it may have had no use for.
                self.sent.pop(key, None)
            self.partitions[key] = partition
        for topic, index in request.forgotten:
            self.partitions.pop((topic, index), None)
            self.sent.pop((topic, index), None)

    def is_news(self, key: Key, high_watermark: int, log_start: int) -> bool:
        """True when the client does not know these numbers yet; they count as told from now on."""
        if key not in self.partitions:
            return True
        sent = self.sent.get(key)
        if sent is None:
            sent = self.sent[key] = Sent()
        if sent.high_watermark == high_watermark and sent.log_start == log_start:
            return False
        sent.high_watermark, sent.log_start = high_watermark, log_start
        return True

    def served(self, keys: Iterable[Key]) -> None:
        """Partitions that just had data go to the end, so that the others get their turn."""
        for key in keys:
            if key in self.partitions:  # else forgotten by a later fetch while this one waited
                self.partitions[key] = self.partitions.pop(key)


@dataclass(slots=True)
class FetchContext:
    """The partitions of one fetch, and its session where there is one."""

    named: list[FetchPartition]
    """What the request names."""
    session: FetchSession | None
    incremental: bool

    @property
    def partitions(self) -> list[FetchPartition]:
        """Everything that the fetch is about."""
        if self.session is None or not self.incremental:
            return self.named
        return list(self.session.partitions.values())

    @property
    def session_id(self) -> int:
        """What the answer says."""
        return self.session.session_id if self.session is not None else 0


class FetchSessions:
    """The sessions of a node."""

    def __init__(self, new_id: Callable[[], int], sessions_max: int = FETCH_SESSIONS_MAX) -> None:
        self._new_id = new_id
        self._sessions_max = sessions_max
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """The partitions that this request is about."""
        if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
            self._drop(request.session_id)
            session = None
            if request.session_epoch == INITIAL_EPOCH and request.partitions:
                session = self._create(request, version, now_ms)
            return FetchContext(request.partitions, session, incremental=False)
        session = self._find(request, version)
        session.update(request)
        session.epoch = session.epoch % EPOCH_MAX + 1
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchContext(request.partitions, session, incremental=True)

    def _drop(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _find(self, request: FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids(version):
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return session

    def _create(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()))  # in order of use
            if now_ms - oldest.used_ms < EVICT_AFTER_MS:
                return None
            self._drop(oldest.session_id)
        session_id = self._new_id()
        while session_id in self._sessions or session_id <= 0:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids(version), used_ms=now_ms)
        session.update(request)
        self._sessions[session_id] = session
        return session


def key_of(partition: FetchPartition) -> Key:
    """How a session knows a partition: by topic id where the request has one."""
    topic = partition.topic_id if partition.topic_id is not None else partition.topic
    assert topic is not None
    return topic, partition.index


def uses_topic_ids(version: int) -> bool:
    """Fetch names topics by id since version 13."""
    return version >= 13
