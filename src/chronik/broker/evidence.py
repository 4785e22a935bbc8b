"""Trace events: what was appended, who leads, who is in sync, what another node was asked."""

from typing import TYPE_CHECKING

from chronik.cluster.image import PartitionState
from chronik.replica.state import Appended
from chronik.trace.events import EventKind
from chronik.trace.tracer import Tracer

if TYPE_CHECKING:
    from chronik.broker.partition import Partition
    from chronik.wire.records import BatchHeader


def trace_append(
    tracer: Tracer,
    kind: EventKind,
    partition: "Partition",
    appended: Appended,
    header: "BatchHeader",
) -> None:
    """A batch has its place in the log; only where the tracer is on."""
    tracer.emit(
        kind,
        partition.topic,
        partition.index,
        appended.leader_epoch,
        appended.base_offset,
        appended.last_offset,
        header.record_count,
        appended.size,
        partition.state.high_watermark,
        partition.state.log_end,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


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
