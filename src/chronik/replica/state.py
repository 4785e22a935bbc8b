"""The state of one partition replica: where the log ends, what of it is durable, what is committed.

    log start <= high watermark <= durable end <= log end

A leader's followers may be ahead of its durable end: they fetch what it has written while its disk
still syncs. It counts itself for the watermark only with what is durable.

A leader takes offsets and counts what its followers have on disk; a follower takes over what its
leader has, bytes and offsets alike. The watermark of a leader is the least end in the maximal ISR:
the committed one and whoever is about to join it (KIP-497).

`append` deduplicates, takes offsets, patches them into the batch and moves the log end in one call
without a pause. The one high watermark lives here and moves only up: there is no second copy.
"""

from collections.abc import Iterable
from typing import NamedTuple

from chronik.model.limits import INHERITED_SEQUENCE_MS
from chronik.replica.producers import ProducerEntry, ProducerTable
from chronik.wire.records import BatchHeader, patch


class Appended(NamedTuple):
    """A batch with its place in the log, yet to be written; `former` undoes its producer entry."""

    buffer: memoryview
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    size: int
    producer_id: int
    former: ProducerEntry | None


class Duplicate(NamedTuple):
    """A batch that is in the log already, at these offsets."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class Follower:
    """What a leader knows of one other replica."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end",
        "fetched_ms",
        "leader_end_then",
        "log_start",
    )

    def __init__(self, now_ms: int) -> None:
        self.end = -1
        """Up to here the follower has everything on disk; -1 until it has asked once."""
        self.log_start = -1
        """Where its log starts, on its disk."""
        self.broker_epoch = -1
        """The registration of the process that asked last (KIP-903)."""
        self.caught_up_ms = now_ms
        """When it last had everything that the leader had."""
        self.fetched_ms = now_ms
        self.leader_end_then = -1


class ReplicaState:
    """Offsets, watermark and producers of one replica; only its owner calls it.

    A new state leads alone, as on a single node.
    """

    __slots__ = (
        "durable_end",
        "epoch_start",
        "followers",
        "high_watermark",
        "inherited_end",
        "inherits_until_ms",
        "is_leader",
        "leader_epoch",
        "log_end",
        "log_start",
        "maximal_isr",
        "producers",
    )

    def __init__(
        self,
        leader_epoch: int,
        log_start: int,
        log_end: int,
        producers: ProducerTable | None = None,
        high_watermark: int | None = None,
    ) -> None:
        """`high_watermark` is what was committed for sure; None: all of the log."""
        assert 0 <= log_start <= log_end
        self.leader_epoch = leader_epoch
        self.log_start = log_start
        self.log_end = log_end
        self.durable_end = log_end
        self.high_watermark = log_end
        if high_watermark is not None:
            self.high_watermark = min(max(high_watermark, log_start), log_end)
        self.producers = producers if producers is not None else ProducerTable()
        self.is_leader = True
        self.epoch_start = log_end
        self.inherited_end = 0
        self.inherits_until_ms = 0
        """Until then producers may have sent more to the leader before than what is below that."""
        self.followers: dict[int, Follower] = {}
        self.maximal_isr: set[int] = set()
        """The other replicas that the watermark waits for."""

    # -- roles

    def lead(
        self, leader_epoch: int, followers: Iterable[int], isr: Iterable[int], now_ms: int
    ) -> bool:
        """Leads from now on, or learns of a new ISR in the same epoch; True: watermark moved."""
        if not self.is_leader or leader_epoch != self.leader_epoch:
            assert leader_epoch >= self.leader_epoch, "leader epochs only grow"
            if not self.is_leader:
                self.inherited_end = self.log_end
                self.inherits_until_ms = now_ms + INHERITED_SEQUENCE_MS
            self.is_leader = True
            self.leader_epoch = leader_epoch
            self.epoch_start = self.log_end
            self.followers = {}
        wanted = set(followers)
        self.followers = {
            one: self.followers.get(one) or Follower(now_ms) for one in sorted(wanted)
        }
        self.maximal_isr = set(isr) & wanted
        return self._recompute_watermark()

    def follow(self, leader_epoch: int) -> None:
        """Another node leads."""
        assert leader_epoch >= self.leader_epoch, "leader epochs only grow"
        self.is_leader = False
        self.leader_epoch = leader_epoch
        self.followers = {}
        self.maximal_isr = set()

    # -- as the leader

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended | Duplicate:
        """Gives a validated batch its offsets, or finds that it has them already."""
        assert self.is_leader, "only the leader gives offsets"
        former: ProducerEntry | None = None
        base_offset, epoch = self.log_end, self.leader_epoch
        producer_id = header.producer_id
        if producer_id >= 0:
            inherited_end = self.inherited_end if now_ms < self.inherits_until_ms else 0
            original = self.producers.check(header, inherited_end)
            if original is not None:
                return Duplicate(original.base_offset, original.last_offset, original.timestamp_ms)
            former = self.producers.advance(header, base_offset, now_ms)
        patch(batch, base_offset, epoch)
        last_offset = base_offset + header.last_offset_delta
        self.log_end = last_offset + 1
        newest, size = header.max_timestamp, len(batch)
        return Appended(batch, base_offset, last_offset, newest, epoch, size, producer_id, former)

    def made_durable(self, end_offset: int) -> bool:
        """What lies below `end_offset` survives a crash; True when the watermark moved."""
        assert end_offset <= self.log_end, "durable beyond what was appended"
        self.durable_end = max(self.durable_end, end_offset)
        return self.is_leader and self._recompute_watermark()

    def follower_fetched(
        self, node_id: int, offset: int, now_ms: int, broker_epoch: int = -1
    ) -> bool:
        """A follower asks from `offset`: it has all before it on disk. True: watermark moved."""
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        follower.end = offset
        follower.broker_epoch = broker_epoch
        durable_end = self.durable_end
        if offset >= durable_end:
            follower.caught_up_ms = now_ms
        elif offset >= follower.leader_end_then:
            # It has what the leader had when it last asked: it was caught up at that time.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.fetched_ms = now_ms
        follower.leader_end_then = durable_end
        return self._recompute_watermark()

    def replicated_start(self) -> int:
        """Nothing below it comes back, whoever of the ISR leads next."""
        return min([self.log_start, *(self.followers[one].log_start for one in self.maximal_isr)])

    def may_join_isr(self) -> set[int]:
        """Followers outside the ISR that have everything committed, in this epoch."""
        needed = max(self.high_watermark, self.epoch_start)
        return {
            node_id
            for node_id, follower in self.followers.items()
            if node_id not in self.maximal_isr and follower.end >= needed
        }

    def must_leave_isr(self, now_ms: int, lag_ms_max: int) -> set[int]:
        """Members of the ISR that have not caught up for too long."""
        leaving = set()
        for node_id in self.maximal_isr:
            follower = self.followers[node_id]
            if follower.end >= self.durable_end:
                # It has everything, asked or not: idle partitions are not asked for again.
                follower.caught_up_ms = now_ms
            elif now_ms - follower.caught_up_ms > lag_ms_max:
                leaving.add(node_id)
        return leaving

    # -- as a follower

    def take_over(self, batch: memoryview, header: BatchHeader) -> Appended:
        """Appends a batch as the leader has it: its offsets, its epoch, its bytes."""
        assert not self.is_leader, "a leader takes nothing over"
        base_offset, _, epoch, _, _, _, delta, _, newest, producer_id, _, _, _ = header
        assert base_offset >= self.log_end, "batches come in order"
        former = None
        if producer_id >= 0 and not header.is_control:
            former = self.producers.advance(header, base_offset, newest)
        last_offset, size = base_offset + delta, len(batch)
        self.log_end = last_offset + 1
        appended = (batch, base_offset, last_offset, newest, epoch, size, producer_id, former)
        return tuple.__new__(Appended, appended)

    def leader_says(self, high_watermark: int, log_start: int) -> bool:
        """Follows the leader's watermark as far as this disk has the data; True: it moved."""
        assert not self.is_leader
        moved = self._advance_watermark(min(high_watermark, self.durable_end))
        if log_start > self.log_start:
            self.log_start = max(self.log_start, min(log_start, self.high_watermark))
        return moved

    def truncated(self, end_offset: int, producers: ProducerTable) -> None:
        """The log was cut back: what lay behind `end_offset` was never committed."""
        assert not self.is_leader
        assert end_offset >= self.high_watermark, "what is committed is never cut"
        self.log_end = self.durable_end = end_offset
        self.producers = producers

    def restarted_at(self, offset: int) -> None:
        """The leader no longer has what this replica lacks: it begins anew there."""
        assert not self.is_leader
        self.log_start = self.log_end = self.durable_end = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.producers = ProducerTable()

    def undo(self, refused: list[Appended], end_offset: int) -> None:
        """Takes back the appends that the disk refused: all that nobody else can have read."""
        if not refused:
            return
        assert refused[-1].last_offset + 1 == self.log_end, "only the newest can be undone"
        assert refused[0].base_offset >= end_offset >= self.durable_end, "it cannot be undone"
        for batch in reversed(refused):
            if batch.producer_id >= 0:
                self.producers.restore(batch.producer_id, batch.former)
        self.log_end = end_offset

    def advance_start(self, offset: int) -> None:
        """Nothing below `offset` is served any more; it only moves up, never past the watermark."""
        assert offset <= self.high_watermark, "log start beyond the high watermark"
        self.log_start = max(self.log_start, offset)

    def _recompute_watermark(self) -> bool:
        least, followers = self.durable_end, self.followers
        for one in self.maximal_isr:
            end = followers[one].end
            if end < least:  # noqa: PLR1730 - `min` is a call, and this is once per fetch
                least = end
        return self._advance_watermark(least)

    def _advance_watermark(self, candidate: int) -> bool:
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True
