"""What a follower asks its leader for: the requests of one fetch session (KIP-227).

A request names what is new or moved; what is unchanged the session remembers. Only the partitions
of the last answer, and those that came or were paused, are compared with what the leader knows;
all of them every few seconds.
"""

from collections.abc import Iterable

from chronik.broker.partition import Partition
from chronik.model.limits import (
    REPLICA_PARTITION_BYTES_MAX,
    REPLICA_RESPONSE_BYTES_MAX,
    REPLICA_WAIT_MS_MAX,
)
from chronik.wire.replica_fetch import ReplicaFetch, ReplicaPartition

COMPARE_EVERY_S = 5.0
"""What changes without the leader's doing, as retention on this disk, is told that soon."""
_EPOCH_MAX = 0x7FFFFFFF

Key = tuple[bytes, int]
Asked = tuple[int, int, int, int]
"""Leader epoch, offset, last epoch and log start of a partition, as the leader was told."""


class Asking:
    """The partitions that follow one leader, and what its session knows of them."""

    def __init__(self) -> None:
        self.partitions: dict[Key, Partition] = {}
        self.session_id = 0
        self._session_epoch = 0
        self._asked: dict[Key, Asked] = {}
        self._paused: dict[Key, float] = {}
        self._touched: set[Key] = set()
        """What may differ from what the session knows."""
        self._gone: set[Key] = set()
        """What the session may know and is to forget."""
        self._compare_at_s = 0.0

    def add(self, key: Key, partition: Partition) -> None:
        """Asks for this partition too, or anew."""
        self.partitions[key] = partition
        self._paused.pop(key, None)
        self._touched.add(key)

    def remove(self, key: Key) -> None:
        """Asks for it no longer."""
        self.partitions.pop(key, None)
        self._paused.pop(key, None)
        self._gone.add(key)

    def pause(self, key: Key, until_s: float) -> None:
        """Leaves it out for a while; the session forgets it."""
        self._paused[key] = until_s
        self._touched.add(key)

    def all_paused(self, now_s: float) -> bool:
        """True where there is nothing to ask for now."""
        if len(self._paused) < len(self.partitions):
            return False
        return all(self._paused.get(key, 0.0) > now_s for key in self.partitions)

    def new_session(self) -> None:
        """The leader knows nothing."""
        self.session_id = self._session_epoch = 0
        self._asked = {}
        self._gone = set()
        self._compare_at_s = 0.0

    def answered(self, session_id: int) -> None:
        """The leader's answer came."""
        self.session_id = session_id
        self._session_epoch = self._session_epoch % _EPOCH_MAX + 1 if session_id else 0

    def told(self, key: Key) -> tuple[Partition | None, Asked | None]:
        """The partition of an answer and what was asked; it is compared before the next request."""
        self._touched.add(key)
        return self.partitions.get(key), self._asked.get(key)

    def request(self, replica_id: int, replica_epoch: int, now_s: float) -> ReplicaFetch:
        """The next request; the session counts it as sent."""
        topics: dict[bytes, list[ReplicaPartition]] = {}
        for key in self._to_compare(now_s):
            partition = self.partitions.get(key)
            if partition is None or (self._paused and self._is_paused(key, now_s)):
                continue
            asked = asked_of(partition)
            if self._asked.get(key) != asked:
                self._asked[key] = asked
                named = (key[1], *asked, REPLICA_PARTITION_BYTES_MAX)
                wanted = tuple.__new__(ReplicaPartition, named)
                topics.setdefault(key[0], []).append(wanted)
        session_id = self.session_id
        said = (
            replica_id,
            replica_epoch,
            REPLICA_WAIT_MS_MAX if session_id else 0,
            1,
            REPLICA_RESPONSE_BYTES_MAX,
            session_id,
            self._session_epoch,
            topics,
            self._to_forget(now_s) if self._gone or self._paused else {},
        )
        return tuple.__new__(ReplicaFetch, said)

    def _to_compare(self, now_s: float) -> Iterable[Key]:
        touched, self._touched = self._touched, set()
        if now_s < self._compare_at_s:
            return touched
        self._compare_at_s = now_s + COMPARE_EVERY_S
        return list(self.partitions)

    def _is_paused(self, key: Key, now_s: float) -> bool:
        until_s = self._paused.get(key)
        if until_s is None:
            return False
        if until_s > now_s:
            self._touched.add(key)
            return True
        del self._paused[key]
        return False

    def _to_forget(self, now_s: float) -> dict[bytes, list[int]]:
        gone: dict[bytes, list[int]] = {}
        for key in {*self._gone, *self._paused}:
            follows = key in self.partitions and self._paused.get(key, 0.0) <= now_s
            if not follows and self._asked.pop(key, None) is not None:
                gone.setdefault(key[0], []).append(key[1])
        self._gone = set()
        return gone


def asked_of(partition: Partition) -> Asked:
    """What this replica has on its disk, and so what it asks its leader for."""
    state, replica_log = partition.state, partition.log
    latest, start = replica_log.epochs.latest, replica_log.start_offset
    if state.durable_end < replica_log.end_offset:
        # It led, and its disk is behind: the epoch belongs to the offset that is asked for.
        latest = replica_log.epochs.epoch_at(state.durable_end - 1)
    return state.leader_epoch, state.durable_end, latest, start
