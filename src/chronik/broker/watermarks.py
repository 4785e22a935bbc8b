"""Looks at the watermarks: checkpoints them, and reports those that stay behind their log's end.

The checkpoint is for fast restarts only; the one watermark lives in the replica's state. It is
written every few seconds, and sooner where much was committed since. A leader's log end is always
a little ahead of the watermark; what was appended a whole look ago and is not committed yet is
a follower that hangs, a disk that is slow, or a defect.
"""

import logging
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from chronik.broker.partition import Partition
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers
from chronik.trace.events import EventKind
from chronik.trace.tracer import Tracer

Key = tuple[bytes, int]

log = logging.getLogger(__name__)


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    WARN = 1
    ALARM = 2


class Thresholds(NamedTuple):
    """From the node's configuration."""

    interval_ms: int
    interval_ms_min: int
    checkpoint_lag: int
    warn: int
    alarm: int

    @classmethod
    def of(cls, layers: BrokerLayers) -> "Thresholds":
        """As they are now."""
        return cls(*(int(str(effective(name, layers))) for name in _KEYS))


_KEYS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "chronik.watermark.checkpoint.min.interval.ms",
    "chronik.watermark.checkpoint.lag.messages",
    "chronik.watermark.behind.warn.messages",
    "chronik.watermark.behind.alarm.messages",
)


class CheckpointPace:
    """When the watermarks are to be written again."""

    def __init__(self) -> None:
        self._written: dict[Partition, int] = {}
        self._written_ms = 0

    def is_due(self, partitions: Iterable[Partition], now_ms: int, limits: Thresholds) -> bool:
        """Every interval where something moved, but at once where a checkpoint is far behind."""
        waited_ms = now_ms - self._written_ms
        if waited_ms < limits.interval_ms_min:
            return False
        behind_max = 0 if waited_ms >= limits.interval_ms else limits.checkpoint_lag
        written = self._written
        return any(
            one.state.high_watermark - written.get(one, 0) > behind_max for one in partitions
        )

    def written(self, partitions: Iterable[Partition], now_ms: int) -> None:
        """They are on their way to the disk."""
        self._written = {one: one.state.high_watermark for one in partitions}
        self._written_ms = now_ms


class WatermarkMonitor:
    """The partitions led here whose log end runs ahead of the watermark for longer than a look."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._ends: dict[Key, int] = {}
        """The log ends of those that were not all committed at the last look."""
        self._levels: dict[Key, Level] = {}
        self.behind_max = 0
        """Messages, of the partition that is furthest behind."""

    def count(self, level: Level) -> int:
        """Partitions at this level now."""
        return sum(1 for one in list(self._levels.values()) if one is level)

    def look(self, partitions: Iterable[Partition], limits: Thresholds) -> None:
        """Compares with the look before; what became better or worse is said once."""
        former_ends, former_levels = self._ends, self._levels
        self._ends, self._levels, self.behind_max = {}, {}, 0
        for one in partitions:
            state = one.state
            if state.log_end == state.high_watermark or not state.is_leader:
                if former_levels:
                    self._settle(one, Level.OK, former_levels)
                continue
            key = (one.topic_id, one.index)
            self._ends[key] = state.log_end
            behind = former_ends.get(key, 0) - state.high_watermark
            self.behind_max = max(self.behind_max, behind)
            level = _level(behind, limits)
            if level is not Level.OK:
                self._levels[key] = level
            self._settle(one, level, former_levels)

    def _settle(self, partition: Partition, level: Level, former: dict[Key, Level]) -> None:
        if level is former.get((partition.topic_id, partition.index), Level.OK):
            return
        state = partition.state
        if level is not Level.OK:
            log.warning(
                "%s-%d: the log ends at %d, only what is below %d is committed: do its followers "
                "keep up?",
                partition.topic,
                partition.index,
                state.log_end,
                state.high_watermark,
            )
        if self._tracer.on:
            self._tracer.emit(
                EventKind.WATERMARK_BEHIND,
                partition.topic,
                partition.index,
                state.leader_epoch,
                high_watermark=state.high_watermark,
                log_end=state.log_end,
                detail=level.name.lower(),
            )


def _level(behind: int, limits: Thresholds) -> Level:
    if behind > limits.alarm:
        return Level.ALARM
    return Level.WARN if behind > limits.warn else Level.OK
