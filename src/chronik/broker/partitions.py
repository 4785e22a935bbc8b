"""Every partition replica of this node: found by name or id, opened at the start, kept in step
with the metadata image. Nothing else creates a `Partition`, so there is one state of each.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from chronik.broker.checkpoints import Checkpoints, usable_offsets
from chronik.broker.clock import Clock
from chronik.broker.closing import close_logs
from chronik.broker.commit import GroupCommit
from chronik.broker.controller import Controller
from chronik.broker.disk import Disk
from chronik.broker.evidence import trace_assignment
from chronik.broker.metrics import Metrics
from chronik.broker.opening import Opened, open_all
from chronik.broker.partition import Partition
from chronik.broker.removal import Removals
from chronik.broker.status import PartitionStatus
from chronik.broker.turns import Turns
from chronik.cluster.image import ClusterImage, PartitionState, Topic
from chronik.model.errors import ErrorCode
from chronik.model.topic_configs import TopicConfig, base_config, resolve
from chronik.replica.state import ReplicaState
from chronik.storage.checkpoints import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from chronik.storage.data_dir import DataDir
from chronik.storage.directory import (
    delete_log_directory,
    log_directories,
    log_name,
    sweep_deleted,
)
from chronik.storage.log import Log
from chronik.storage.operations import Checkpoint
from chronik.storage.segment import LogConfig, Storage
from chronik.trace.tracer import Tracer
from chronik.wire.compression import CODECS, Codec

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
OPEN_CHUNK = 64
"""Logs opened by one job of a disk thread."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Parts:
    """What the partitions of a node share."""

    node_id: int
    data_dir: DataDir
    storage: Storage
    static: Mapping[str, str]
    commit: GroupCommit
    disk: Disk
    clock: Clock
    metrics: Metrics
    tracer: Tracer
    turns: Turns


class Partitions:
    """The replicas that the image assigns to this node."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.checkpoints = Checkpoints(parts.storage.fs, parts.data_dir.path, parts.disk)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}
        self._removals = Removals(parts.storage, parts.disk, parts.commit)
        self._image: ClusterImage | None = None
        self._watermarks: dict[str, int] = {}
        self._recovered = False
        self._was_clean = False
        self._role_watchers: list[Callable[[Partition], None]] = []
        self._base = TopicConfig()
        self.codecs: dict[str | bytes, Codec] = {}
        """By name and by id: the topics whose compression.type names a codec."""

    def watch_roles(self, watcher: Callable[[Partition], None]) -> None:
        """Has the watcher called for every partition that is opened, assigned anew or closed."""
        self._role_watchers.append(watcher)

    # -- finding

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def by_name(self, topic: str, index: int) -> Partition | None:
        """The replica of a partition, if this node has it."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def find(
        self, topic: str | None, topic_id: bytes | None, index: int
    ) -> tuple[Partition | None, ErrorCode]:
        """By id where there is one, else by name; and the error to answer where there is none.

        Peers reach a node before it has its metadata: that it knows no topic says nothing then.
        """
        if not self._recovered:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic_id is None:
            partitions = self._by_name.get(topic or "")
            if partitions is None:
                return None, _UNKNOWN
        else:
            partitions = self._by_id.get(topic_id)
            if partitions is None:
                return None, ErrorCode.UNKNOWN_TOPIC_ID
        return partitions.get(index), _UNKNOWN

    def leader_of(self, topic: str | None, topic_id: bytes | None, index: int) -> int:
        """The node that leads a partition as the metadata has it; -1 where none is known."""
        state = self._assigned(topic, topic_id, index)
        return -1 if state is None else state.leader

    def is_assigned(self, topic: str | None, topic_id: bytes | None, index: int) -> bool:
        """True where the metadata has the partition, wherever its replicas are."""
        return self._assigned(topic, topic_id, index) is not None

    def _assigned(
        self, topic: str | None, topic_id: bytes | None, index: int
    ) -> PartitionState | None:
        name = topic if topic_id is None else self._image_name(topic_id)
        if name is None or self._image is None:
            return None
        return self._image.partition(name, index)

    def id_of(self, topic: str) -> bytes:
        """The id of a topic; zeros where there is none."""
        found = self._image.topics.get(topic) if self._image is not None else None
        return bytes(16) if found is None else found.id

    def _image_name(self, topic_id: bytes) -> str | None:
        return None if self._image is None else self._image.topic_names.get(topic_id)

    def name_of(self, topic: str | None, topic_id: bytes | None) -> str | None:
        """The topic's name, for evidence."""
        if topic_id is None:
            return topic
        return self._names.get(topic_id) or self._image_name(topic_id)

    # -- the image

    async def recover(self, controller: Controller) -> None:
        """Opens every log of this node; sweeps what belongs to topics that are gone.

        The image may move on meanwhile; from the end of this call on it is followed.
        """
        image = controller.image
        await self._recover(image)
        self._recovered = True
        controller.subscribe(self.image_changed)
        self.image_changed(image, controller.image)

    async def _recover(self, image: ClusterImage) -> None:
        parts = self._parts
        fs, topics_dir = parts.storage.fs, parts.data_dir.topics
        self._image = image
        self._base = base_config(image.layers(parts.node_id, parts.static))
        clean = self._was_clean = take_clean_shutdown(fs, parts.data_dir.path)
        points = usable_offsets(fs, parts.data_dir.path, RECOVERY_POINTS)
        self._watermarks = usable_offsets(fs, parts.data_dir.path, HIGH_WATERMARKS)
        await parts.disk.run(lambda: sweep_deleted(fs, topics_dir))
        present = set(await parts.disk.run(lambda: log_directories(fs, topics_dir)))
        wanted = [
            (topic, index)
            for topic, index, state in image.partitions()
            if parts.node_id in state.replicas
        ]
        if wanted and not clean:
            log.info("the last stop was not clean: checking the tails of %d logs", len(wanted))
        expected = {log_name(topic.name, index) for topic, index in wanted}
        chunks = [wanted[i : i + OPEN_CHUNK] for i in range(0, len(wanted), OPEN_CHUNK)]
        await asyncio.gather(
            *(self._open_chunk(chunk, points, present, clean=clean) for chunk in chunks)
        )
        for name in present - expected:
            path = f"{topics_dir}/{name}"
            await parts.disk.run(partial(delete_log_directory, parts.storage, path, "stray"))

    async def _open_chunk(
        self,
        chunk: list[tuple[Topic, int]],
        points: Mapping[str, int],
        present: set[str],
        *,
        clean: bool,
    ) -> None:
        parts, image = self._parts, self._image
        assert image is not None

        opening = partial(
            open_all, parts.storage, parts.data_dir.topics, chunk, points, present, clean=clean
        )
        for (topic, index), opened in zip(chunk, await parts.disk.run(opening), strict=True):
            self._add(topic, index, image, opened)

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Follows the metadata: new partitions, deleted ones, changed configuration."""
        self._image = new
        if new.configs is not old.configs:
            self._base = base_config(new.layers(self._parts.node_id, self._parts.static))
            self._reconfigure(old, new)
        if new.topics is old.topics:
            return
        for topic_id, name in old.topic_names.items():
            if topic_id not in new.topic_names:
                self._remove_topic(topic_id, name)
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is not topic:
                self._follow(topic, before, new)

    def _follow(self, topic: Topic, before: Topic | None, image: ClusterImage) -> None:
        known = before.partitions if before is not None and before.id == topic.id else ()
        for index, state in enumerate(topic.partitions):
            if index < len(known) and known[index] is state:
                continue
            partition = self.by_name(topic.name, index)
            if self._parts.node_id in state.replicas:
                former = known[index] if index < len(known) else None
                trace_assignment(self._parts.tracer, topic.name, index, former, state)
            if partition is None and self._parts.node_id in state.replicas:
                self._add(topic, index, image, None)
            elif partition is not None and self._parts.node_id not in state.replicas:
                self._remove_replica(topic, partition)
            elif partition is not None:
                partition.assign(state, self._parts.node_id, self._parts.clock.now_ms())
                self._tell_roles(partition)

    def _tell_roles(self, partition: Partition) -> None:
        for watcher in self._role_watchers:
            watcher(partition)

    def _reconfigure(self, old: ClusterImage, new: ClusterImage) -> None:
        for partitions in self._by_name.values():
            for partition in partitions.values():
                self._configure(partition, new)

    def _configure(self, partition: Partition, image: ClusterImage) -> None:
        config = resolve(image.topic_overrides(partition.topic), self._base)
        partition.configure(config)
        number = CODECS.get(config.compression_type)
        for key in (partition.topic, partition.topic_id):
            if number is None:
                self.codecs.pop(key, None)
            else:
                self.codecs[key] = Codec(number, config.compression_level)

    def _add(self, topic: Topic, index: int, image: ClusterImage, opened: Opened | None) -> None:
        parts = self._parts
        name = log_name(topic.name, index)
        directory = f"{parts.data_dir.topics}/{name}"
        assigned = topic.partitions[index]
        if opened is None:
            opened = Opened(Log(parts.storage, directory, LogConfig(), [], 0, 0), None)
        replica_log, producers, checkpointed_at = opened
        state = ReplicaState(
            assigned.leader_epoch,
            replica_log.start_offset,
            replica_log.end_offset,
            producers,
            self._watermarks.get(name, 0) if len(assigned.replicas) > 1 else None,
        )
        state.is_leader = False
        partition = Partition(
            topic,
            index,
            replica_log,
            state,
            parts.metrics.topic(topic.name),
            parts.tracer,
            parts.turns.look,
        )
        partition.has_directory = producers is not None
        if self._was_clean and partition.has_directory:
            partition.checkpointed_at = checkpointed_at
        self._configure(partition, image)
        self._by_name.setdefault(topic.name, {})[index] = partition
        self._by_id.setdefault(topic.id, {})[index] = partition
        self._names[topic.id] = topic.name
        partition.assign(assigned, parts.node_id, parts.clock.now_ms())
        self._tell_roles(partition)
        self._removals.hold_back(partition)

    # -- deleting

    def _remove_topic(self, topic_id: bytes, name: str) -> None:
        partitions = self._by_id.pop(topic_id, {})
        self._names.pop(topic_id, None)
        self._by_name.pop(name, None)
        for key in (topic_id, name):
            self.codecs.pop(key, None)
        self._parts.metrics.forget_topic(name)
        for partition in partitions.values():
            partition.gone = True
            self._close(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _remove_replica(self, topic: Topic, partition: Partition) -> None:
        """The replica was moved to another node."""
        del self._by_name[topic.name][partition.index]
        del self._by_id[topic.id][partition.index]
        self._close(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _close(self, partition: Partition, code: ErrorCode) -> None:
        partition.leader_id = -1
        partition.close(code)
        self._tell_roles(partition)
        self._removals.remove(partition)

    # -- operations

    async def advance_start(self, partition: Partition, offset: int) -> None:
        """DeleteRecords: durable, then visible; whole segments below it go with the next sweep."""
        await self._parts.commit.operate(partition, lambda: partition.log.advance_start(offset))
        partition.state.advance_start(partition.log.start_offset)
        partition.wake_fetches()

    async def expire(self, partition: Partition) -> None:
        """Retention by time, size and log start."""
        config, state, now_ms = partition.config, partition.state, self._parts.clock.now_ms()
        retention_ms = config.retention_ms if config.deleted else -1
        retention_bytes = config.retention_bytes if config.deleted else -1
        deletion = await self._parts.commit.operate(
            partition,
            lambda: partition.log.expire(
                now_ms, retention_ms, retention_bytes, state.high_watermark
            ),
        )
        if deletion is not None:
            state.advance_start(partition.log.start_offset)
            partition.wake_fetches()

    async def checkpoint(self, partition: Partition) -> None:
        """Bounds the partition's next recovery, producers included."""
        done = await self._parts.commit.operate(
            partition,
            partition.log.checkpoint,
            lambda: partition.producers_writer(sync=True),
        )
        if isinstance(done, Checkpoint):
            partition.checkpointed_at = done.end_offset

    async def close(self) -> None:
        """Every log closed in order, so that the next start need not look at them.

        A node that failed before it had opened its logs must not call them clean.
        """
        if not self._recovered:
            return
        open_ones = [
            one for one in self if one.has_directory and one.checkpointed_at != one.log.end_offset
        ]
        for partition in self:
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        fs, path = self._parts.storage.fs, self._parts.data_dir.path
        try:
            parts = self._parts
            await close_logs(open_ones, parts.commit, parts.disk, parts.data_dir.volume)
            await self.checkpoints.write_points(self)
            await self.checkpoints.write_watermarks(self)
            await self._parts.disk.run(lambda: mark_clean_shutdown(fs, path))
        except OSError as error:
            # What was acknowledged is safe without; only the next start takes longer.
            log.warning("no clean stop, the next start checks the logs' tails: %s", error)

    def status(self) -> Iterator[PartitionStatus]:
        """One line per replica."""
        image = self._image
        for one in self:
            state = image.partition(one.topic, one.index) if image is not None else None
            if state is not None:
                yield PartitionStatus(
                    topic=one.topic,
                    partition=one.index,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    log_start=one.state.log_start,
                    log_end=one.state.log_end,
                    high_watermark=one.state.high_watermark,
                    size_bytes=one.log.size,
                    replicas=state.replicas,
                    in_sync=state.isr,
                )
