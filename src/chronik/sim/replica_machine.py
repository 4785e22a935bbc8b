"""One replica of the simulated partition: the real partition and log on a simulated disk.

What `broker/replication.py`, `broker/isr.py`, `broker/commit.py` and `handlers/fetch.py` do with
tasks and sockets is done here in plain steps, in the same order and by the same rules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from chronik.broker.asking import asked_of
from chronik.broker.metrics import TopicCounters
from chronik.broker.opening import Opened, open_partition, rebuilt_producers
from chronik.broker.partition import Partition
from chronik.cluster.commands import IsrChange
from chronik.cluster.image import EMPTY, ClusterImage
from chronik.model.errors import ErrorCode
from chronik.model.topic_configs import TopicConfig
from chronik.sim.disk import SimDisk
from chronik.sim.replica_bugs import ReplicaBuild
from chronik.storage.directory import log_name
from chronik.storage.log import Log
from chronik.storage.operations import Reset, Truncation
from chronik.storage.segment import LogConfig, Storage
from chronik.storage.write import Write
from chronik.trace.tracer import OFF
from chronik.wire.record_writer import build_batch
from chronik.wire.records import read_header, scan

TOPIC = "t"
TOPICS_DIR = "/topics"
MIN_INSYNC = 2
FETCH_BYTES = 2_000
LAG_MS_MAX = 150
CONFIG = TopicConfig(min_insync_replicas=MIN_INSYNC)
Operation = Truncation | Reset


@dataclass(frozen=True, slots=True)
class Fetch:
    """A follower asks its leader."""

    sender: int
    to: int
    number: int
    offset: int
    leader_epoch: int
    last_epoch: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the leader says; `cut_epoch` and `cut_end` name the point where the logs part."""

    to: int
    number: int
    records: bytes = b""
    high_watermark: int = -1
    cut_epoch: int = -1
    cut_end: int = -1


class ReplicaMachine:
    """A node with one replica; everything in memory is lost when it is off."""

    def __init__(self, number: int, build: ReplicaBuild, random: Random) -> None:
        self.id = number
        self.build = build
        self.random = random
        self.disk = SimDisk()
        self.disk.forgets_failed_syncs = True
        self.disk.mkdir(TOPICS_DIR)
        self.disk.fsync_dir("/")
        self.is_on = False
        self.life = 0
        self.synced_end = 0
        self.watermark_checkpoint = 0
        self.partition: Partition | None = None
        self.image: ClusterImage = EMPTY
        self.broker_epoch = -1
        self.is_busy = False
        self.asked: tuple[int, int, int] | None = None
        """Number, offset and leader epoch of the fetch that is out."""
        self.proposal: IsrChange | None = None
        self._numbers = 0

    # -- life

    def power_off(self) -> None:
        """Memory is gone, and of the disk what was not synced, in part."""
        self.is_on, self.partition, self.image = False, None, EMPTY
        self.broker_epoch, self.is_busy, self.asked, self.proposal = -1, False, None, None
        self.disk.crash(self.random)

    def open(self, image: ClusterImage, now_ms: int) -> None:
        """Registered: the log is read, and the role taken."""
        topic = image.topics[TOPIC]
        storage = Storage(self.disk)
        name = log_name(TOPIC, 0)
        directory = f"{TOPICS_DIR}/{name}"
        opened: Opened | None = None
        if name in self.disk.listdir(TOPICS_DIR):
            opened = open_partition(storage, TOPICS_DIR, topic, 0, {}, clean=False)
        if opened is None:
            opened = Opened(Log(storage, directory, LogConfig(), [], 0, 0), None)
        log, producers, _ = opened
        state = self.build.state_type(
            topic.partitions[0].leader_epoch,
            log.start_offset,
            log.end_offset,
            producers,
            self.watermark_checkpoint,
        )
        state.is_leader = False
        self.partition = self.build.partition_type(topic, 0, log, state, TopicCounters(), OFF)
        self.partition.has_directory = producers is not None
        self.partition.configure(CONFIG)
        self.synced_end = log.end_offset
        self.image = image
        self._assign(now_ms)

    def learn(self, image: ClusterImage, now_ms: int) -> None:
        """A newer image."""
        if self.partition is None or image.version <= self.image.version:
            return
        self.image = image
        self._assign(now_ms)

    def _assign(self, now_ms: int) -> None:
        assert self.partition is not None
        self.partition.assign(self.image.topics[TOPIC].partitions[0], self.id, now_ms)

    # -- the disk

    def begin_write(self, now_ms: int) -> Callable[[], None] | None:
        """What the disk has to do now; None while it works, or where nothing waits.

        As the group commit does it, what has followers is shown to them before it is synced.
        """
        partition = self.partition
        if partition is None or self.is_busy:
            return None
        if not partition.has_pending and not partition.is_unsynced:
            return None
        write = partition.begin_write(now_ms)
        if not write.exposed and partition.has_followers and write.is_plain:
            try:
                write.execute(sync=False)
            except OSError:
                partition.refused(write, ErrorCode.KAFKA_STORAGE_ERROR)
                return None
            partition.expose(write)
        self.is_busy = True
        return partial(self._execute, partition, write)

    def _execute(self, partition: Partition, write: Write) -> None:
        self.is_busy = False
        try:
            partition.perform(write, sync=True)
        except OSError:
            partition.refused(write, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.synced_end = max(self.synced_end, write.end_offset)
            partition.written(write, 0)

    # -- as the leader

    def produce(self, value: bytes, now_ms: int, acked: Callable[[int], None] | None) -> bool:
        """Appends a record where this node leads; `acked` is called when it is committed."""
        partition = self.partition
        if partition is None or not partition.state.is_leader:
            return False
        if acked is not None and partition.isr_size < MIN_INSYNC:
            return False
        batch = memoryview(build_batch([(None, value)], now_ms))
        appended = partition.append(batch, read_header(batch), now_ms)
        if acked is not None:
            told = partial(self._told, acked, appended.base_offset)
            partition.committed_waiters.add(appended.last_offset + 1, told)
        return True

    def _told(self, acked: Callable[[int], None], offset: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            acked(offset)

    def serve(self, fetch: Fetch, now_ms: int) -> Answer | None:
        """As `handlers/fetch.py` answers a follower; None for an error."""
        partition = self.partition
        if partition is None or not partition.state.is_leader:
            return None
        state, log = partition.state, partition.log
        if fetch.leader_epoch != state.leader_epoch or fetch.offset < state.log_start:
            return None
        parts = log.divergence(fetch.last_epoch, fetch.offset)
        if parts is not None and self.build.names_divergence:
            return Answer(fetch.sender, fetch.number, cut_epoch=parts[0], cut_end=parts[1])
        if fetch.offset > log.end_offset:
            return None
        partition.follower_fetched(fetch.sender, fetch.offset, now_ms, fetch.broker_epoch, 0)
        self._propose_joining()
        read = partition.read_for_follower(fetch.offset, FETCH_BYTES, at_least_one_batch=True)
        records = b"".join(read.slices)
        return Answer(fetch.sender, fetch.number, records, state.high_watermark)

    def _propose_joining(self) -> None:
        assert self.partition is not None
        state = self.partition.state
        if self.proposal is not None or len(state.maximal_isr) == len(state.followers):
            return
        joining = {one for one in state.may_join_isr() if self._may_join(one)}
        if joining:
            self._propose(state.maximal_isr | joining)

    def _may_join(self, node: int) -> bool:
        assert self.partition is not None
        broker = self.image.brokers.get(node)
        epoch = self.partition.state.followers[node].broker_epoch
        return broker is not None and broker.live and broker.epoch == epoch

    def propose_leaving(self, now_ms: int) -> None:
        """Those who have not caught up for long."""
        partition = self.partition
        if partition is None or not partition.state.is_leader or self.proposal is not None:
            return
        leaving = partition.state.must_leave_isr(now_ms, LAG_MS_MAX)
        if leaving:
            self._propose(partition.state.maximal_isr - leaving)

    def _propose(self, others: set[int]) -> None:
        assert self.partition is not None
        assigned = self.image.topics[TOPIC].partitions[0]
        if assigned.leader != self.id:
            return
        followers, joining = self.partition.state.followers, others - set(assigned.isr)
        if self.build.counts_proposed_isr:
            self.partition.isr_proposed = frozenset(others)
            self.partition.state.maximal_isr |= others
        self.proposal = IsrChange(
            self.partition.topic_id,
            0,
            assigned.leader_epoch,
            assigned.partition_epoch,
            tuple(
                (one, followers[one].broker_epoch if one in joining else -1)
                for one in sorted(others | {self.id})
            ),
        )

    def settle(self, proposal: IsrChange, now_ms: int) -> None:
        """The controller has answered, and this node has its image."""
        if self.partition is not None and self.proposal is proposal:
            self.proposal = self.partition.isr_proposed = None
            self._assign(now_ms)

    # -- as a follower

    def fetch(self) -> Fetch | None:
        """The next question to the leader, where there is one."""
        partition = self.partition
        if partition is None or partition.state.is_leader or partition.leader_id < 0:
            return None
        state = partition.state
        self._numbers += 1
        _, offset, last_epoch, _ = asked_of(partition)
        if not self.build.asks_from_durable_end:
            offset = state.log_end
        # Of a former leader batches may be on their way to the disk: an answer does not fit then.
        self.asked = (self._numbers, offset, state.leader_epoch)
        return Fetch(
            self.id,
            partition.leader_id,
            self._numbers,
            offset,
            state.leader_epoch,
            last_epoch,
            self.broker_epoch,
        )

    def take(self, answer: Answer) -> None:
        """Takes over what the leader said, if nothing has changed since it was asked."""
        partition, asked = self.partition, self.asked
        if partition is None or asked is None or answer.number != asked[0]:
            return
        self.asked, state = None, partition.state
        if state.is_leader or (state.log_end, state.leader_epoch) != asked[1:]:
            return
        if answer.cut_end >= 0:
            self._cut(partition, answer)
            return
        epoch = state.leader_epoch
        for position, header in scan(memoryview(answer.records)):
            if header.base_offset >= state.log_end:
                # A copy of its own: offsets are patched in place.
                batch = bytearray(answer.records[position : position + header.size])
                partition.take_over(memoryview(batch), header)

        def hear(_: ErrorCode) -> None:
            if not state.is_leader and state.leader_epoch == epoch:
                partition.leader_says(answer.high_watermark, 0)

        if state.durable_end >= state.log_end:
            hear(ErrorCode.NONE)
        else:
            partition.durable_waiters.add(state.log_end, hear)

    def _cut(self, partition: Partition, answer: Answer) -> None:
        """As `broker/replication.py` cuts: never below the watermark."""
        log, state = partition.log, partition.state
        if self.is_busy or state.durable_end != state.log_end:
            return
        own_epoch, own_end = log.end_offset_for_epoch(answer.cut_epoch)
        target = min(answer.cut_end, own_end) if own_epoch >= 0 else answer.cut_end
        target = min(max(target, state.high_watermark), state.log_end)
        producers = rebuilt_producers(log, target)
        operation: Operation = log.truncate_to(target)
        state.truncated(log.end_offset, producers)
        self.synced_end = min(self.synced_end, log.end_offset)
        operation.execute()
        log.apply(operation)
