"""The owner of one partition replica: its state, its log, and those who wait on it.

Everything here is synchronous and runs on the event loop: between a check and its use nothing else
can happen. Blocking work is handed out as a `Write` and comes back through `written` or `refused`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from chronik.broker.evidence import (
    APPENDED,
    FOLLOWER_APPENDED,
    trace_append,
    trace_cut,
    trace_durable,
    trace_replicated,
    trace_watermark,
)
from chronik.broker.long_polls import LongPolls, Woken, look_at_once
from chronik.broker.metrics import TopicCounters
from chronik.broker.newest import Newest, newest_of
from chronik.broker.opening import make_directory, producers_writer
from chronik.broker.shared_read import SharedRead
from chronik.broker.topic_rules import batch_rules, log_config
from chronik.broker.waiters import Waiters
from chronik.cluster.image import PartitionState, Topic
from chronik.model.errors import ErrorCode
from chronik.model.topic_configs import TopicConfig
from chronik.replica.state import Appended, Duplicate, ReplicaState
from chronik.storage.log import Log
from chronik.storage.segment import Read
from chronik.storage.write import Write
from chronik.trace.tracer import Tracer

if TYPE_CHECKING:
    from chronik.wire.records import BatchHeader

_NONE = ErrorCode.NONE


class OffsetError(Exception):
    """A request names an offset or an epoch that this replica cannot serve."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Partition:
    """One replica with its log. Created once per partition, by `Partitions` alone."""

    __slots__ = (
        "_newest",
        "_pending",
        "_shared",
        "_tracer",
        "_writing",
        "_written_bytes",
        "busy",
        "checkpointed_at",
        "committed_bytes",
        "committed_waiters",
        "config",
        "counters",
        "durable_waiters",
        "fetch_waiters",
        "follower_waiters",
        "gone",
        "has_directory",
        "in_commit_queue",
        "index",
        "isr_proposed",
        "isr_size",
        "leader_id",
        "log",
        "opened_at_offset",
        "rules",
        "start_waiters",
        "state",
        "sync",
        "topic",
        "topic_id",
        "turns",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: Log,
        state: ReplicaState,
        counters: TopicCounters,
        tracer: Tracer,
        woken: Woken = look_at_once,
    ) -> None:
        self.topic = topic.name
        self.topic_id = topic.id
        self.counters = counters
        self.index = index
        self.log = log
        self.state = state
        self.sync = True
        self.has_directory = False
        self.opened_at_offset = log.end_offset
        self.checkpointed_at = -1
        """The log's end at its last checkpoint: there, a clean stop has nothing left to do."""
        self.gone = False
        """True once the topic is deleted: nothing is written to the log any more."""
        self.in_commit_queue = False
        self.busy = False
        """True while an operation on the log is with the disk; see `GroupCommit`."""
        self.turns: deque[asyncio.Future[None]] = deque()
        self.durable_waiters = Waiters()
        self.committed_waiters = Waiters()
        self.start_waiters = Waiters()
        """For a log start that every replica of the ISR has on disk."""
        self.fetch_waiters = LongPolls(woken)
        self.follower_waiters: dict[Callable[[], None], None] = {}
        self.leader_id, self.isr_size = -1, 1
        self.isr_proposed: frozenset[int] | None = None
        """The other members of an ISR that is with the controller: they count already."""
        self._shared = SharedRead()
        self._newest: Newest | None = None  # while followers are yet to fetch it
        self._pending: list[Appended] = []
        self._writing: list[Appended] = []
        self._written_bytes = 0
        """Since the log was opened."""
        self.committed_bytes = 0
        """At most as many of them as are committed: those of the last time that all were."""
        self._tracer = tracer

    def configure(self, config: TopicConfig) -> None:
        """Takes the topic's configuration, at the start and whenever it changes."""
        self.config = config
        self.sync = config.fsync
        self.rules = batch_rules(config)
        self.log.config = log_config(config)

    def assign(self, assigned: PartitionState, node_id: int, now_ms: int) -> None:
        """Takes the role that the metadata gives it."""
        self._newest = None  # its place in the log may be another's by the time it leads again
        self.leader_id = assigned.leader
        self.isr_size = len(assigned.isr)
        if assigned.leader == node_id:
            followers = [one for one in assigned.replicas if one != node_id]
            isr = {*assigned.isr, *(self.isr_proposed or ())}
            is_new = assigned.leader_epoch != self.state.leader_epoch
            has_gained = not self.state.followers.keys() >= set(followers)
            if self.state.lead(assigned.leader_epoch, followers, isr, now_ms):
                if self._tracer.on:
                    trace_watermark(self._tracer, self)
                self._watermark_moved()
            self.start_waiters.reached(self.state.replicated_start())
            if is_new or has_gained:
                self.wake_fetches()  # of those with an older epoch, or not counted so far
            return
        if self.state.is_leader or assigned.leader_epoch != self.state.leader_epoch:
            self.state.follow(assigned.leader_epoch)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            # What is not yet on disk is not yet acknowledged: a new leader may not have it.
            self.durable_waiters.failed_beyond(self.state.durable_end, code)
            self.committed_waiters.failed_beyond(self.state.high_watermark, code)
            self.start_waiters.failed_beyond(-1, code)
            self.wake_fetches()

    # -- appending

    def append(self, batch: memoryview, header: "BatchHeader", now_ms: int) -> Appended | Duplicate:
        """Deduplicates, assigns offsets and queues the batch for the disk, in one step."""
        appended = self.state.append(batch, header, now_ms)
        if isinstance(appended, Appended):
            self._pending.append(appended)
            if self._tracer.on:
                trace_append(self._tracer, APPENDED, self, appended, header)
        return appended

    def take_over(self, batch: memoryview, header: "BatchHeader") -> None:
        """Queues a batch of the leader, as it is, for the disk."""
        appended = self.state.take_over(batch, header)
        self._pending.append(appended)
        if self._tracer.on:
            trace_append(self._tracer, FOLLOWER_APPENDED, self, appended, header)

    def follower_fetched(
        self, node_id: int, offset: int, now_ms: int, broker_epoch: int, log_start: int
    ) -> None:
        """A follower has everything from `log_start` to `offset` on its disk."""
        state = self.state
        follower = state.followers.get(node_id)
        if follower is None:
            return
        if follower.log_start != log_start:
            follower.log_start = log_start
            self.start_waiters.reached(state.replicated_start())
        if self._tracer.on and offset > follower.end:
            trace_replicated(self._tracer, self, node_id, offset)
        if state.follower_fetched(node_id, offset, now_ms, broker_epoch):
            if self._tracer.on:
                trace_watermark(self._tracer, self)
            self._watermark_moved()

    def leader_says(self, high_watermark: int, log_start: int) -> None:
        """The leader's watermark and log start, as far as this replica has the data."""
        if self.state.leader_says(high_watermark, log_start):
            if self._tracer.on:
                trace_watermark(self._tracer, self)
            self._watermark_moved()

    @property
    def has_pending(self) -> bool:
        """True while batches wait for a write."""
        return bool(self._pending) and not self.gone

    @property
    def is_unsynced(self) -> bool:
        """True while a sync has failed of what followers may have: it is tried again."""
        return self.log.unsynced is not None and not self.log.failed and not self.gone

    @property
    def has_followers(self) -> bool:
        """True where others fetch from here, and so need not wait for this disk's sync."""
        return self.state.is_leader and bool(self.state.followers)

    def begin_write(self, now_ms: int) -> Write:
        """Everything that is pending, as one write; or the one that must be synced before it."""
        log = self.log
        if log.unsynced is not None and self.is_unsynced:
            return log.retry()
        assert self._pending
        write = log.prepare(self._pending, now_ms)
        assert not self._writing, "one write at a time"
        self._writing, self._pending = self._pending, []
        return write

    def expose(self, write: Write) -> None:
        """It is in the page cache: followers write and sync it while this disk does."""
        self.log.expose(write)
        self._newest = newest_of(write)
        self._wake(self.follower_waiters)

    def written(self, write: Write, duration_us: int) -> None:
        """The disk has it: readable, committed, acknowledged."""
        self.log.apply(write)
        state = self.state
        end_offset = self._writing[-1].last_offset + 1
        self._writing = []
        self._written_bytes += write.size
        if not write.exposed:
            self._newest = newest_of(write) if state.is_leader and state.followers else None
        moved = state.made_durable(end_offset)
        if self._tracer.on:
            trace_durable(self._tracer, self, duration_us, moved=moved)
        self.durable_waiters.reached(state.durable_end)
        if moved:
            self._watermark_moved()
        elif not write.exposed:
            self._wake(self.follower_waiters)

    def refused(self, write: Write, code: ErrorCode) -> None:
        """The disk failed: what was on its way never happened, and its producers are told.

        What followers may have stays: whether it will be committed is open, acks=all waits for it.
        """
        self.log.abort(write)
        if not write.exposed:
            self._pending, self._writing = self._writing + self._pending, []
        self.refuse_pending(code)

    def refuse_pending(self, code: ErrorCode) -> None:
        """Takes back every append that is not in the log."""
        self.state.undo(self._pending, self.log.end_offset)
        self._pending = []
        if self._tracer.on:
            trace_cut(self._tracer, self)
        self.durable_waiters.failed_beyond(self.state.durable_end, code)
        self.committed_waiters.failed_beyond(self.state.log_end, code)

    def waiters_for(self, *, committed: bool) -> tuple[Waiters, int]:
        """Where to wait for the watermark (acks=all) or for the disk, and how far it is now."""
        if committed:
            return self.committed_waiters, self.state.high_watermark
        return self.durable_waiters, self.state.durable_end

    def producers_writer(self, *, sync: bool) -> Callable[[], None]:
        """The producers as of the log's end, taken now; call the result in a disk thread."""
        return producers_writer(
            self.log.storage.fs,
            self.log.directory,
            self.state.producers,
            self.log.end_offset,
            sync=sync,
        )

    def _watermark_moved(self) -> None:
        code = _NONE
        if self.isr_size < self.config.min_insync_replicas:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        state = self.state
        self.committed_waiters.reached(state.high_watermark, code)
        if state.high_watermark == state.durable_end:
            self.committed_bytes = self._written_bytes
        if state.high_watermark == self.log.end_offset:
            self._newest = None  # all who are in sync have it
        self.fetch_waiters.reached(self._written_bytes)
        if self.follower_waiters:
            self._wake(self.follower_waiters)

    def wake_fetches(self) -> None:
        """Long polls look again: a new role, a new log start, or the partition's end."""
        self.fetch_waiters.wake_all()
        self._wake(self.follower_waiters)

    def _wake(self, waiters: dict[Callable[[], None], None]) -> None:
        if waiters:
            for wake in list(waiters):
                wake()

    # -- in a disk thread

    def perform(self, write: Write, *, sync: bool) -> None:
        """The write, or what is left of it where followers have seen it. Blocks."""
        if not self.has_directory:
            self.make_directory()
        if write.exposed:
            write.sync()
        else:
            write.execute(sync)

    def make_directory(self) -> None:
        """The partition's directory, before the first thing is written to it. Blocks."""
        make_directory(self.log.storage.fs, self.log.directory, self.topic_id)
        self.has_directory = True

    # -- reading

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fences a client whose knowledge of the leader is older or newer than ours (KIP-320)."""
        if current_leader_epoch < 0 or current_leader_epoch == self.state.leader_epoch:
            return
        if current_leader_epoch < self.state.leader_epoch:
            raise OffsetError(ErrorCode.FENCED_LEADER_EPOCH)
        raise OffsetError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_offset(self, offset: int) -> None:
        """Only offsets from the log start to the log end can be asked for."""
        if not self.state.is_leader and offset > self.state.log_end:
            # Not out of range, which would make a consumer start over: this replica lags.
            raise OffsetError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.state.log_start <= offset <= self.state.log_end:
            raise OffsetError(ErrorCode.OFFSET_OUT_OF_RANGE)

    def read(self, offset: int, max_bytes: int, *, at_least_one_batch: bool) -> Read | None:
        """Committed batches from the one that holds `offset` on; None where there are none.

        Whole ones, as far as the index knows where they begin: a client would throw a part of
        one away and ask for it again.
        """
        watermark = self.state.high_watermark
        if offset >= watermark:
            return None
        asked = offset, max_bytes, watermark, at_least_one_batch, self.log.truncations
        if (shared := self._shared.find(asked)) is not None:
            return shared
        one = at_least_one_batch
        read = self.log.read(offset, max_bytes, watermark, at_least_one_batch=one, whole=True)
        return self._shared.keep(asked, read)

    def read_for_follower(self, offset: int, max_bytes: int, *, at_least_one_batch: bool) -> Read:
        """What a follower lacks: everything that is on this disk, committed or not.

        A part of a batch is of no use to it, and the next answer would send all of that again.
        """
        end, one, newest = self.log.end_offset, at_least_one_batch, self._newest
        if newest is not None and newest.fits(offset, max_bytes, end):
            return newest.read
        return self.log.read(offset, max_bytes, end, at_least_one_batch=one, whole=True)

    def close(self, code: ErrorCode) -> None:
        """The partition goes away (deleted, or the node stops): nobody waits in vain."""
        self.durable_waiters.failed_beyond(-1, code)
        self.committed_waiters.failed_beyond(-1, code)
        self.start_waiters.failed_beyond(-1, code)
        self.wake_fetches()
