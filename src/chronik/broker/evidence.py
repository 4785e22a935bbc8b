"""Trace events: what a partition did, who leads, who is in sync, what another node was asked.

Those of a partition are called only where the tracer is on. Those on the path of every batch put
their columns in place themselves (`TraceEvent` has the order): half of what `emit` costs.
"""

from typing import TYPE_CHECKING

from chronik.cluster.image import PartitionState
from chronik.replica.state import Appended
from chronik.trace.events import EventKind
from chronik.trace.tracer import Tracer

if TYPE_CHECKING:
    from chronik.broker.partition import Partition
    from chronik.wire.records import BatchHeader

_FSYNCED = EventKind.FSYNCED
_REPLICATED = EventKind.REPLICATED
_WATERMARK = EventKind.WATERMARK


def trace_append(
    tracer: Tracer,
    kind: EventKind,
    partition: "Partition",
    appended: Appended,
    header: "BatchHeader",
) -> None:
    """A batch has its place in the log."""
    state = partition.state
    # fmt: off
    tracer.add((
        *tracer.now(), tracer.node, kind, partition.topic, partition.index, appended.leader_epoch,
        appended.base_offset, appended.last_offset, header.record_count, appended.size,
        state.high_watermark, state.log_end,
        header.producer_id, header.producer_epoch, header.base_sequence,
        None, None, None, None, None, None, None, None,
    ))
    # fmt: on


def trace_durable(tracer: Tracer, partition: "Partition", duration_us: int, *, moved: bool) -> None:
    """The disk has what was written, and the watermark may have moved by it."""
    state = partition.state
    # fmt: off
    tracer.add((
        *tracer.now(), tracer.node, _FSYNCED, partition.topic, partition.index, state.leader_epoch,
        None, None, None, None, None, state.durable_end, None, None, None,
        None, None, None, None, None, None, duration_us, "fsync" if partition.sync else "os",
    ))
    # fmt: on
    if moved:
        trace_watermark(tracer, partition)


def trace_replicated(tracer: Tracer, partition: "Partition", node_id: int, log_end: int) -> None:
    """A follower has everything up to here."""
    tracer.emit(
        _REPLICATED,
        partition.topic,
        partition.index,
        partition.state.leader_epoch,
        log_end=log_end,
        peer=node_id,
    )


def trace_cut(tracer: Tracer, partition: "Partition") -> None:
    """What the disk refused is no longer part of the log."""
    tracer.emit(
        EventKind.TRUNCATED,
        partition.topic,
        partition.index,
        partition.state.leader_epoch,
        log_end=partition.state.log_end,
        detail="the disk refused the rest",
    )


def trace_watermark(tracer: Tracer, partition: "Partition") -> None:
    """The watermark moved."""
    state = partition.state
    # fmt: off
    tracer.add((
        *tracer.now(), tracer.node, _WATERMARK, partition.topic, partition.index,
        state.leader_epoch, None, None, None, None, state.high_watermark, state.log_end, None, None,
        None, None, None, None, None, None, None, None, None,
    ))
    # fmt: on


def trace_assignment(
    tracer: Tracer, topic: str, index: int, old: PartitionState | None, new: PartitionState
) -> None:
    """A partition's new leader and its new in-sync replicas, as this node learns them."""
    if not tracer.on:
        return
    if old is None or old.leader_epoch != new.leader_epoch:
        tracer.emit(
            EventKind.ELECTION, topic, index, leader_epoch=new.leader_epoch, peer=new.leader
        )
    if old is None or old.isr != new.isr:
        tracer.emit(
            EventKind.ISR_CHANGE,
            topic,
            index,
            leader_epoch=new.leader_epoch,
            peer=new.leader,
            detail=",".join(map(str, new.isr)),
        )


def trace_controller(tracer: Tracer, leader: int, term: int) -> None:
    """Another node, or this one, leads the metadata log; -1 is nobody."""
    if tracer.on:
        tracer.emit(EventKind.ELECTION, leader_epoch=term, peer=leader)


def trace_forwarded(
    tracer: Tracer, topic: str | None, index: int, leader: int, size: int, client_id: str | None
) -> None:
    """A partition of a request went to its leader."""
    if tracer.on:
        tracer.emit(EventKind.FORWARDED, topic, index, bytes=size, client_id=client_id, peer=leader)
